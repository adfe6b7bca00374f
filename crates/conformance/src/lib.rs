//! What every store must do, as scenarios generic over a store, and the in-memory reference store.
//!
//! A store's crate runs [`suite!`](crate::suite!) in its tests; each scenario drives the engine through `Store::transact` alone, with a clock
//! the test moves.

pub mod clock;
pub mod memory;
pub mod sim;
pub mod state;
pub mod suite;
pub mod world;
