//! Real binaries, end to end: what is promised when workers and the control plane are killed, stopped, drained and flooded.

mod conctl;
mod drain;
mod durability;
mod flood;
mod lost_worker;
mod signals;
mod tls;
