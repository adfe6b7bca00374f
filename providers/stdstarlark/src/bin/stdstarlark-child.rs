//! The smallest binary that can evaluate programs: the child of this crate's own tests, fuzzing and benchmark.

fn main() {
    stdstarlark::enter_child_if_asked();
    eprintln!("this binary only evaluates programs for its parent; start a worker instead");
}
