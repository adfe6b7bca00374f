//! The engine: what the control plane decides, with no database, socket or clock in it.
//!
//! Owns the data model ([`model`]), the commands that change it ([`command`]), the pure rules they share ([`decide`]) and the
//! contract a store fulfils ([`store`]). A command reads and writes through a [`view::View`]: typed rows over whatever the store
//! holds, with an overlay for what this command wrote. `decide` may run more than once before its writes are taken (a store that
//! cannot read synchronously answers [`view::Halt::Need`] and decides again), so it must be a function of the rows and of `now`.
//!
//! What must hold: all writes enter by [`store::Store::transact`] or are a claim left with [`store::Store::stand`]; a refused command writes nothing; no reply leaves before its
//! commit; nothing here polls: every row that can become due names the time or the row that makes it so.
//! Not here: SQL (`store-*`), leases and their clocks (`broker`), HTTP (`api`).

pub mod audit;
pub mod command;
pub mod decide;
pub mod fleet;
pub mod model;
pub mod offers;
pub mod refusal;
pub mod stamp;
pub mod store;
pub mod view;
pub mod waiting;

pub use command::{Command, Reply};
pub use refusal::Refusal;
pub use store::Store;
