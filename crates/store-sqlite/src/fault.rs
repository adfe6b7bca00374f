//! What can go wrong below the trait: SQLite itself, or a row that does not decode. Callers know whether they read or wrote.

use converge_engine::store::StoreError;
use rusqlite::ErrorCode;

/// See the module.
#[derive(Debug)]
pub(crate) enum Fault {
    Sql(rusqlite::Error),
    Corrupt(String),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl Fault {
    /// A stored value that is not what its column holds.
    pub(crate) fn corrupt(what: impl std::fmt::Display, why: impl std::fmt::Display) -> Self {
        Self::Corrupt(format!("{what}: {why}"))
    }

    /// The transaction is no more, and nothing that was asked for says why.
    pub(crate) fn rolled_back() -> Self {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
        let what = "SQLite rolled the transaction back".to_owned();
        Self::Sql(rusqlite::Error::SqliteFailure(code, Some(what)))
    }

    /// As a reader is told.
    pub(crate) fn on_read(self) -> StoreError {
        match self {
            Self::Corrupt(what) => StoreError::Corrupt(what),
            Self::Sql(error) if is_damage(&error) => StoreError::Corrupt(error.to_string()),
            Self::Sql(error) => StoreError::Unreadable(error.to_string()),
        }
    }

    /// As a writer is told.
    pub(crate) fn on_write(self) -> StoreError {
        match self {
            Self::Corrupt(what) => StoreError::Corrupt(what),
            Self::Sql(error) if is_damage(&error) => StoreError::Corrupt(error.to_string()),
            Self::Sql(error) => StoreError::Unwritable(error.to_string()),
        }
    }

    /// Whether it is about one statement and its values. Otherwise about the file or the disk: any other write would fail alike.
    pub(crate) fn is_of_one_statement(&self) -> bool {
        match self {
            Self::Corrupt(_) => true,
            Self::Sql(error) => match error.sqlite_error_code() {
                Some(code) => matches!(
                    code,
                    ErrorCode::ConstraintViolation
                        | ErrorCode::TypeMismatch
                        | ErrorCode::TooBig
                        | ErrorCode::Unknown
                ),
                // rusqlite's own: a value it could not bind or read.
                None => true,
            },
        }
    }
}

fn is_damage(error: &rusqlite::Error) -> bool {
    match error.sqlite_error_code() {
        Some(code) => matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase),
        None => matches!(
            error,
            rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
        ),
    }
}
