//! (being written)
mod bundle;
mod child;
pub mod limits;
mod protocol;
