//! Prepared statements and columns: the only place that knows how a Rust value lies in a column.
//!
//! Every statement is prepared once per connection and kept. Columns are read in the order of the select list.

use std::str::FromStr;

use bytes::Bytes;
use converge_engine::model::Digest;
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::json::Doc;
use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row};
use serde::de::DeserializeOwned;

use crate::fault::Fault;

/// The columns of one row, left to right.
pub(crate) struct Cols<'r> {
    row: &'r Row<'r>,
    next: usize,
}

impl Cols<'_> {
    fn place(&self) -> String {
        self.row.as_ref().column_name(self.next - 1).map_or_else(
            |_| format!("column {}", self.next - 1),
            |name| format!("column {name}"),
        )
    }

    pub(crate) fn get<T: FromSql>(&mut self) -> Result<T, Fault> {
        let at = self.next;
        self.next += 1;
        Ok(self.row.get(at)?)
    }

    fn text(&mut self) -> Result<&str, Fault> {
        let at = self.next;
        self.next += 1;
        let value = self.row.get_ref(at)?;
        value
            .as_str()
            .map_err(|error| Fault::corrupt(format!("column {at}"), error))
    }

    /// A value that is parsed from text.
    pub(crate) fn parsed<T: FromStr<Err: std::fmt::Display>>(&mut self) -> Result<T, Fault> {
        let parsed = self.text()?.parse::<T>().map_err(|error| error.to_string());
        parsed.map_err(|error| Fault::corrupt(self.place(), error))
    }

    pub(crate) fn parsed_or_null<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
    ) -> Result<Option<T>, Fault> {
        if self.row.get_ref(self.next)? == rusqlite::types::ValueRef::Null {
            self.next += 1;
            return Ok(None);
        }
        self.parsed().map(Some)
    }

    pub(crate) fn json<T: DeserializeOwned>(&mut self) -> Result<T, Fault> {
        let parsed = serde_json::from_str(self.text()?);
        parsed.map_err(|error| Fault::corrupt(self.place(), error))
    }

    pub(crate) fn uid(&mut self) -> Result<Uid, Fault> {
        self.get::<[u8; 16]>().map(Uid::from_bytes)
    }

    pub(crate) fn uid_or_null(&mut self) -> Result<Option<Uid>, Fault> {
        Ok(self.get::<Option<[u8; 16]>>()?.map(Uid::from_bytes))
    }

    pub(crate) fn digest(&mut self) -> Result<Digest, Fault> {
        self.get::<[u8; 16]>()
            .map(|bytes| Digest(u128::from_be_bytes(bytes)))
    }

    pub(crate) fn kind(&mut self) -> Result<Kind, Fault> {
        self.parsed()
    }

    pub(crate) fn name(&mut self) -> Result<ResourceName, Fault> {
        self.parsed()
    }

    pub(crate) fn config_name(&mut self) -> Result<ConfigName, Fault> {
        self.parsed()
    }

    /// Two columns: kind, version.
    pub(crate) fn kv(&mut self) -> Result<KindVersion, Fault> {
        let kind = self.kind()?;
        let version = self.get()?;
        KindVersion::new(kind, version).map_err(|error| Fault::corrupt(self.place(), error))
    }

    pub(crate) fn doc(&mut self) -> Result<Doc, Fault> {
        self.get::<Vec<u8>>()
            .map(|bytes| Doc::from_stored(Bytes::from(bytes)))
    }
}

/// Every row.
pub(crate) fn all<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    mut decode: impl FnMut(&mut Cols<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(decode(&mut Cols { row, next: 0 })?);
    }
    Ok(found)
}

/// The first row, if any.
pub(crate) fn one<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    mut decode: impl FnMut(&mut Cols<'_>) -> Result<T, Fault>,
) -> Result<Option<T>, Fault> {
    let mut statement = conn.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    match rows.next()? {
        Some(row) => decode(&mut Cols { row, next: 0 }).map(Some),
        None => Ok(None),
    }
}

/// Carries out one statement; how many rows it changed.
pub(crate) fn run(conn: &Connection, sql: &str, params: impl Params) -> Result<usize, Fault> {
    Ok(conn.prepare_cached(sql)?.execute(params)?)
}

/// A digest as its column holds it.
pub(crate) fn digest(digest: Digest) -> [u8; 16] {
    digest.0.to_be_bytes()
}

/// A value as JSON text.
pub(crate) fn json<T: serde::Serialize>(value: &T) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|error| Fault::corrupt("a value to store", error))
}
