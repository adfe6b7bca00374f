//! The real `conctl` against a scripted server on loopback: whole outputs, exit codes, and what it sent.

mod apply;
mod change;
mod fake;
mod offline;
mod read;
mod run;
mod sync;
