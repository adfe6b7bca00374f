//! The rules every command shares. Pure: rows in, changed rows out; no store, clock, socket or tokio.
//!
//! [`mod@derive`] says where a row stands given its neighbours; [`propagate`] applies that and passes on what others must know, until
//! nothing changes. Commands change base facts (spec, marks, failure, edges …), call [`crate::view::View::touch`] and leave the rest to it.

pub mod causes;
pub mod compose;
pub mod conditions;
pub mod configs;
pub mod derive;
pub mod failure;
pub mod flows;
pub mod gate;
pub mod inputs;
pub mod plan;
pub mod propagate;
pub mod teardown;
pub mod turns;
