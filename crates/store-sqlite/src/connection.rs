//! Opening the file: what is asked of SQLite, read back and checked, and the numbered migrations.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

/// Marks a file as ours: "conv".
const APPLICATION_ID: i64 = 0x636f_6e76;
/// In order; the schema version of a file is how many of them it has seen.
const MIGRATIONS: &[&str] = &[
    include_str!("../migrations/0001_initial.sql"),
    include_str!("../migrations/0002_what_teardown_reads.sql"),
    include_str!("../migrations/0003_fewer_pages_a_commit.sql"),
];
/// Pages (of 4 KiB) in the WAL after which a commit copies them into the file.
const CHECKPOINT_PAGES: i64 = 4_000;
/// More statements than there are texts of.
const STATEMENTS: usize = 256;
pub(crate) const BUSY: Duration = Duration::from_secs(5);

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// SQLite could not open or prepare the file.
    #[error("could not open the database {path}", path = .path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// The file is no database, or parts of it are gone.
    #[error("the database {path} is damaged: restore its directory from a backup, or move it away to start empty", path = .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What SQLite found.
        #[source]
        source: rusqlite::ffi::Error,
    },
    /// The file was written by a newer version of this program.
    #[error("the database {path} has schema {found} and this version knows up to {known}: start the newer version", path = .path.display())]
    NewerSchema {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: i64,
        /// What we know.
        known: i64,
    },
    /// The file is a database of some other program.
    #[error("the database {path} belongs to another program (application id {found:#x})", path = .path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its application id.
        found: i64,
    },
    /// SQLite did not take a setting we rely on.
    #[error("the database {path} does not take the setting {name} = {wanted}: it stays {found}", path = .path.display())]
    Setting {
        /// The file.
        path: PathBuf,
        /// The pragma.
        name: &'static str,
        /// What we asked for.
        wanted: String,
        /// What it says.
        found: String,
    },
    /// A migration failed; the file is as it was.
    #[error("could not bring the database {path} to schema {to}", path = .path.display())]
    Migration {
        /// The file.
        path: PathBuf,
        /// The schema that failed.
        to: usize,
        /// Why.
        #[source]
        source: rusqlite::Error,
    },
    /// What was read at the start does not make sense.
    #[error("the database {path} cannot be used", path = .path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: converge_engine::store::StoreError,
    },
    /// The operating system gave no thread.
    #[error("could not start the thread that writes")]
    Thread(#[source] std::io::Error),
}

impl OpenError {
    /// What it means that SQLite refuses this file.
    pub(crate) fn of(path: &Path, error: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match error {
            rusqlite::Error::SqliteFailure(source, _)
                if matches!(
                    source.code,
                    ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt
                ) =>
            {
                Self::Damaged { path, source }
            }
            source => Self::Open { path, source },
        }
    }
}

/// What the writer's connection is opened with.
pub(crate) struct WriterSettings {
    pub(crate) wal_limit_bytes: u64,
    pub(crate) max_bytes: Option<u64>,
}

/// Opens the writer's connection, creating and migrating the file.
pub(crate) fn writer(path: &Path, settings: &WriterSettings) -> Result<Connection, OpenError> {
    // SQLite gives its other files the mode of this one; by itself it would let everybody read it. It says what is wrong with the path.
    if path != Path::new(":memory:") {
        let _ = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
    }
    let conn = open(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    let opened = |error| OpenError::of(path, error);
    let id: i64 = get(&conn, "application_id").map_err(opened)?;
    let schema: i64 = get(&conn, "user_version").map_err(opened)?;
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(opened)?;
    if id != APPLICATION_ID && (id != 0 || schema != 0 || tables != 0) {
        return Err(OpenError::Foreign {
            path: path.to_owned(),
            found: id,
        });
    }
    let known = MIGRATIONS.len() as i64;
    if schema > known {
        return Err(OpenError::NewerSchema {
            path: path.to_owned(),
            found: schema,
            known,
        });
    }
    set(&conn, path, "journal_mode", "wal", "wal")?;
    set(&conn, path, "synchronous", "full", "2")?;
    let pages = CHECKPOINT_PAGES.to_string();
    set(&conn, path, "wal_autocheckpoint", &pages, &pages)?;
    let limit = settings.wal_limit_bytes.to_string();
    set(&conn, path, "journal_size_limit", &limit, &limit)?;
    set(&conn, path, "cache_size", "-65536", "-65536")?;
    set(&conn, path, "temp_store", "memory", "2")?;
    // Without it a statement with `LIMIT ?` is planned again whenever another number is bound: for a claim that costs more than the claim.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(opened)?;
    if let Some(bytes) = settings.max_bytes {
        let page: i64 = get(&conn, "page_size").map_err(opened)?;
        let pages = i64::try_from(bytes).unwrap_or(i64::MAX) / page.max(1);
        set(
            &conn,
            path,
            "max_page_count",
            &pages.to_string(),
            &pages.to_string(),
        )?;
    }
    migrate(&conn, path, schema)?;
    Ok(conn)
}

/// Opens a connection that only reads.
pub(crate) fn reader(path: &Path) -> Result<Connection, OpenError> {
    let conn = open(path, OpenFlags::empty())?;
    set(&conn, path, "query_only", "on", "1")?;
    set(&conn, path, "cache_size", "-16384", "-16384")?;
    set(&conn, path, "temp_store", "memory", "2")?;
    Ok(conn)
}

fn open(path: &Path, more: OpenFlags) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | more;
    let opened = |error| OpenError::of(path, error);
    let conn = Connection::open_with_flags(path, flags).map_err(opened)?;
    conn.set_prepared_statement_cache_capacity(STATEMENTS);
    conn.busy_timeout(BUSY).map_err(opened)?;
    Ok(conn)
}

fn get<T: rusqlite::types::FromSql>(conn: &Connection, name: &str) -> rusqlite::Result<T> {
    conn.pragma_query_value(None, name, |row| row.get(0))
}

/// Sets a pragma, reads it back and compares.
fn set(
    conn: &Connection,
    path: &Path,
    name: &'static str,
    value: &str,
    wanted: &str,
) -> Result<(), OpenError> {
    let opened = |error| OpenError::of(path, error);
    // Some pragmas answer when they are set, some do not.
    conn.pragma_update_and_check(None, name, value, |_| Ok(()))
        .or_else(|error| match error {
            rusqlite::Error::QueryReturnedNoRows => Ok(()),
            error => Err(error),
        })
        .map_err(opened)?;
    let found: rusqlite::types::Value = get(conn, name).map_err(opened)?;
    let found = match found {
        rusqlite::types::Value::Text(text) => text,
        rusqlite::types::Value::Integer(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    if found == wanted {
        Ok(())
    } else {
        Err(OpenError::Setting {
            path: path.to_owned(),
            name,
            wanted: wanted.to_owned(),
            found,
        })
    }
}

fn migrate(conn: &Connection, path: &Path, schema: i64) -> Result<(), OpenError> {
    let done = usize::try_from(schema).unwrap_or(0);
    for (index, migration) in MIGRATIONS.iter().enumerate().skip(done) {
        let to = index + 1;
        let step = || {
            let transaction = conn.unchecked_transaction()?;
            transaction.execute_batch(migration)?;
            transaction.pragma_update(None, "user_version", to as i64)?;
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            transaction.commit()
        };
        step().map_err(|source| OpenError::Migration {
            path: path.to_owned(),
            to,
            source,
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: WriterSettings = WriterSettings {
        wal_limit_bytes: 1 << 20,
        max_bytes: None,
    };

    #[test]
    fn the_writer_has_what_makes_a_commit_last() {
        let dir = tempfile::tempdir().unwrap();
        let conn = writer(&dir.path().join("store.db"), &SETTINGS).unwrap();
        assert_eq!(get::<String>(&conn, "journal_mode").unwrap(), "wal");
        let full = 2;
        assert_eq!(get::<i64>(&conn, "synchronous").unwrap(), full);
    }

    #[test]
    fn a_setting_that_is_not_taken_is_an_error() {
        // What is kept in memory has no WAL, and SQLite says so only when it is asked.
        let error = writer(Path::new(":memory:"), &SETTINGS).unwrap_err();
        assert!(
            matches!(&error, OpenError::Setting { name: "journal_mode", found, .. } if found == "memory"),
            "{error}"
        );
    }

    #[test]
    fn nobody_else_may_read_what_is_made() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let conn = writer(&path, &SETTINGS).unwrap();
        let files: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .collect();
        assert_eq!(files.len(), 3, "{files:?}");
        for file in files {
            let mode = file.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{file:?}");
        }
        drop(conn);
    }
}
