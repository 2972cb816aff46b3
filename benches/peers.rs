//! `cargo bench -p ndpool-bench`

use std::process::ExitCode;

fn main() -> ExitCode {
    ndpool_bench::main()
}
