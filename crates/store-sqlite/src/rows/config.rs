//! Configs, their bundles, and the sweeps that follow their edits.

use std::sync::Arc;

use converge_engine::model::{Bundle, Config, ConfigSweep};
use converge_types::ids::ConfigName;
use rusqlite::{Connection, Params, params};

use crate::fault::Fault;
use crate::sql::{self, Cols};

/// The select list that [`decode`] reads.
pub(crate) const SELECT: &str = "SELECT name, kind, version, is_default, spec, bundle_bytes, bundle_digest, effective, \
    broken, owner, former, created_ms, updated_ms, revision FROM config ";

fn decode(cols: &mut Cols<'_>) -> Result<Arc<Config>, Fault> {
    Ok(Arc::new(Config {
        name: cols.config_name()?,
        kv: cols.kv()?,
        is_default: cols.get()?,
        spec: cols.doc()?,
        bundle_bytes: cols.get()?,
        bundle_digest: cols.digest()?,
        effective: cols.digest()?,
        broken: cols.get()?,
        owner: cols.uid_or_null()?,
        former: cols.get()?,
        created_ms: cols.get()?,
        updated_ms: cols.get()?,
        revision: cols.get()?,
    }))
}

/// Configs that `tail` (WHERE, ORDER BY, LIMIT) picks.
pub(crate) fn all(
    conn: &Connection,
    tail: &str,
    params: impl Params,
) -> Result<Vec<Arc<Config>>, Fault> {
    sql::all(conn, &format!("{SELECT}{tail}"), params, decode)
}

pub(crate) fn by_name(conn: &Connection, name: &ConfigName) -> Result<Option<Arc<Config>>, Fault> {
    Ok(all(conn, "WHERE name = ?1", [name.as_str()])?.pop())
}

pub(crate) fn put(conn: &Connection, row: &Config) -> Result<(), Fault> {
    let sql = "INSERT OR REPLACE INTO config (name, kind, version, is_default, spec, bundle_bytes, bundle_digest,
        effective, broken, owner, former, created_ms, updated_ms, revision)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
    let params = params![
        row.name.as_str(),
        row.kv.kind.as_str(),
        row.kv.version,
        row.is_default,
        row.spec.as_bytes(),
        row.bundle_bytes,
        sql::digest(row.bundle_digest),
        sql::digest(row.effective),
        row.broken,
        row.owner.as_ref().map(|uid| *uid.as_bytes()),
        row.former,
        row.created_ms,
        row.updated_ms,
        row.revision
    ];
    sql::run(conn, sql, params)?;
    Ok(())
}

pub(crate) fn delete(conn: &Connection, name: &ConfigName) -> Result<(), Fault> {
    sql::run(conn, "DELETE FROM config WHERE name = ?1", [name.as_str()])?;
    Ok(())
}

pub(crate) fn bundle(conn: &Connection, name: &ConfigName) -> Result<Option<Bundle>, Fault> {
    let sql = "SELECT bytes FROM bundle WHERE name = ?1";
    sql::one(conn, sql, [name.as_str()], |cols| {
        Ok(Bundle(cols.get::<Vec<u8>>()?.into()))
    })
}

pub(crate) fn bundle_put(
    conn: &Connection,
    name: &ConfigName,
    bundle: Option<&Bundle>,
) -> Result<(), Fault> {
    match bundle {
        Some(Bundle(bytes)) => {
            let sql = "INSERT OR REPLACE INTO bundle (name, bytes) VALUES (?1, ?2)";
            sql::run(conn, sql, params![name.as_str(), &**bytes])?;
        }
        None => {
            sql::run(conn, "DELETE FROM bundle WHERE name = ?1", [name.as_str()])?;
        }
    }
    Ok(())
}

/// The oldest sweep.
pub(crate) fn sweep_next(conn: &Connection) -> Result<Option<ConfigSweep>, Fault> {
    let sql = "SELECT kind, version, nullif(config_ref, ''), nullif(after, x'') FROM sweep ORDER BY id LIMIT 1";
    sql::one(conn, sql, [], |cols| {
        Ok(ConfigSweep {
            kv: cols.kv()?,
            config_ref: cols.parsed_or_null()?,
            after: cols.uid_or_null()?,
        })
    })
}

/// Queues a sweep; an equal one that waits already serves both.
pub(crate) fn sweep_put(conn: &Connection, sweep: &ConfigSweep) -> Result<(), Fault> {
    let sql =
        "INSERT OR IGNORE INTO sweep (kind, version, config_ref, after) VALUES (?1, ?2, ?3, ?4)";
    sweep_run(conn, sql, sweep)
}

pub(crate) fn sweep_done(conn: &Connection, sweep: &ConfigSweep) -> Result<(), Fault> {
    let sql =
        "DELETE FROM sweep WHERE kind = ?1 AND version = ?2 AND config_ref = ?3 AND after = ?4";
    sweep_run(conn, sql, sweep)
}

fn sweep_run(conn: &Connection, sql: &str, sweep: &ConfigSweep) -> Result<(), Fault> {
    let config_ref = sweep.config_ref.as_ref().map_or("", |name| name.as_str());
    let after: &[u8] = sweep.after.as_ref().map_or(&[], |uid| uid.as_bytes());
    sql::run(
        conn,
        sql,
        params![sweep.kv.kind.as_str(), sweep.kv.version, config_ref, after],
    )?;
    Ok(())
}

/// The default config of a pair.
pub(crate) fn default(
    conn: &Connection,
    kv: &converge_types::ids::KindVersion,
) -> Result<Option<Arc<Config>>, Fault> {
    let tail = "WHERE kind = ?1 AND version = ?2 AND is_default = 1 ORDER BY name LIMIT 1";
    Ok(all(conn, tail, params![kv.kind.as_str(), kv.version])?.pop())
}

/// A page by name; a cursor is the name of the last item before it.
pub(crate) fn page(
    conn: &Connection,
    kind: Option<&converge_types::ids::Kind>,
    cursor: Option<&str>,
    limit: u32,
) -> Result<converge_engine::store::Page<Arc<Config>>, Fault> {
    let limit = limit.max(1);
    let tail = "WHERE (?1 IS NULL OR kind = ?1) AND name > ?2 ORDER BY name LIMIT ?3";
    let params = params![
        kind.map(|kind| kind.as_str()),
        cursor.unwrap_or(""),
        i64::from(limit) + 1
    ];
    let mut items = all(conn, tail, params)?;
    let more = items.len() > limit as usize;
    items.truncate(limit as usize);
    Ok(converge_engine::store::Page {
        next: items
            .last()
            .filter(|_| more)
            .map(|row| row.name.to_string()),
        items,
        revision: super::tally::revision(conn)?,
    })
}
