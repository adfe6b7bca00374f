//! (skeleton)

fn main() {}
