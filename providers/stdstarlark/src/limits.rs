//! Every bound of this provider, in one place, so that a reader can see at a glance what a program may cost.
//!
//! The inner bounds (steps, heap, nesting) end a program with a good message and are deterministic. The outer ones
//! (address space, wall clock) hold even where the interpreter cannot look: inside one native call.

use std::time::Duration;

/// Bytes of one bundle as it is stored (a zip of stored entries plus its directory fits).
pub const BUNDLE_BYTES: usize = 6 << 20;
/// Bytes of all entries of a bundle together, unpacked.
pub const UNPACKED_BYTES: u64 = 4 << 20;
/// Bytes of one `.star` file.
pub const FILE_BYTES: u64 = 512 << 10;
/// Entries of a bundle, directories included.
pub const ENTRIES: usize = 2_000;
/// Bytes of one entry's name.
pub const NAME_BYTES: usize = 512;
/// Parts of one entry's path.
pub const NAME_PARTS: usize = 32;

/// Bytes of `spec` and `config` together.
pub const INPUT_BYTES: usize = 16 << 20;
/// Levels of nesting of a value on its way in or out.
pub const DEPTH: usize = 64;
/// Values (containers included) on the way in, and again on the way out.
pub const NODES: usize = 1_000_000;
/// Bytes of JSON that a program may return.
pub const OUTPUT_BYTES: usize = 16 << 20;
/// Bits of one whole number on the way in or out (about 1,200 digits).
pub const INTEGER_BITS: u64 = 4_096;
/// Problems of one result that are listed; the rest is counted.
pub const PROBLEMS: usize = 20;

/// Steps of one run over all its files; a step is a call or a loop turn.
pub const STEPS: u64 = 2_000_000;
/// Bytes of the interpreter's heap.
pub const HEAP_BYTES: usize = 256 << 20;
/// Frames of the call stack. Recursion is refused, so this bounds only chains of distinct functions.
pub const FRAMES: usize = 200;
/// Lines that `print` may send in one run; the rest is counted.
pub const PRINT_LINES: usize = 500;
/// Bytes of one printed line.
pub const PRINT_BYTES: usize = 8 << 10;

/// What a child may map on top of what it has mapped when it starts.
pub const ADDRESS_SPACE_BYTES: u64 = 512 << 20;
/// The stack evaluation runs on: parser, compiler and interpreter recurse with the nesting of the source.
pub const STACK_BYTES: usize = 64 << 20;
/// Processor time of one run, kept by the kernel. On a busy machine it runs slower than the clock, so a good program is
/// not to blame for its neighbours.
pub const RUN_PROCESSOR_TIME: Duration = Duration::from_millis(1_500);
/// How long one run may take, by the clock of the parent.
pub const RUN_TIME: Duration = Duration::from_millis(3_500);
/// A run shorter than this shows that its program is a good one.
pub const GOOD_TIME: Duration = Duration::from_millis(500);
/// Good programs that are remembered.
pub const GOOD_PROGRAMS: usize = 256;
/// How long a child may take to say that it is there.
pub const START_TIME: Duration = Duration::from_secs(10);
/// Runs after which a child is retired, so that nothing can build up in it.
pub const RUNS_PER_CHILD: u32 = 1_000;
/// A child that has this much memory resident after a run is retired at once.
pub const RESIDENT_BYTES: u64 = 128 << 20;
/// One message between parent and child. Above [`OUTPUT_BYTES`] and above bundle plus input, both escaped as JSON.
pub const MESSAGE_BYTES: usize = 64 << 20;
