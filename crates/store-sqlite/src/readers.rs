//! Connections that only read: a few, each used by one read at a time, each read one snapshot.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use converge_engine::store::StoreError;
use rusqlite::Connection;
use tokio::sync::Semaphore;

use crate::connection::{self, OpenError};
use crate::fault::Fault;

pub(crate) struct Readers {
    path: PathBuf,
    count: u32,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Connection>>,
}

impl Readers {
    pub(crate) fn open(path: PathBuf, count: u32) -> Result<Self, OpenError> {
        let count = count.clamp(1, 64);
        let idle = (0..count)
            .map(|_| connection::reader(&path))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            path,
            count,
            permits: Arc::new(Semaphore::new(count as usize)),
            idle: Mutex::new(idle),
        })
    }

    /// Runs `read` in one snapshot on a thread that may block.
    ///
    /// # Cancellation
    /// A dropped read ends by itself and gives its connection back then.
    pub(crate) async fn read<T, F>(self: &Arc<Self>, read: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        let permit = permit.map_err(|_| StoreError::Closed)?;
        let readers = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            let conn = readers.take()?;
            let result = snapshot(&conn, read);
            readers.give_back(conn);
            drop(permit);
            result.map_err(Fault::on_read)
        });
        reading
            .await
            .unwrap_or_else(|error| Err(StoreError::Unreadable(format!("a read failed: {error}"))))
    }

    fn take(&self) -> Result<Connection, StoreError> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        // A connection is missing after a read that panicked.
        idle.map_or_else(
            || {
                connection::reader(&self.path)
                    .map_err(|error| StoreError::Unreadable(error.to_string()))
            },
            Ok,
        )
    }

    fn give_back(&self, conn: Connection) {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(conn);
    }

    /// Waits for reads under way, then closes every connection.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(self.count).await;
        self.permits.close();
        drop(all);
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }
}

fn snapshot<T>(
    conn: &Connection,
    read: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    // Rolls back when dropped, also when `read` fails.
    let transaction = conn.unchecked_transaction()?;
    let result = read(&transaction)?;
    transaction.commit()?;
    Ok(result)
}
