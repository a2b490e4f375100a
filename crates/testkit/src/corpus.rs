//! Replays the committed corpus of a fuzz target: each input as it is, and each of its prefixes, since
//! a cut-off message is what a parser meets first.
//!
//! The corpus lies in `fuzz/corpus/TARGET/`, one input per file. `crates/fuzzing` does this for every
//! target that it knows; tests of other crates seldom need it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// No input may take longer than this, in a debug build on a busy machine: what does, hangs.
const INPUT_TIME_MAX: Duration = Duration::from_secs(5);
/// Longer inputs are cut at this many evenly spread places instead of at each byte.
const PREFIXES_MAX: usize = 512;

/// What a replay did.
#[derive(Debug, PartialEq, Eq)]
pub struct Replay {
    /// Files in the corpus.
    pub inputs: usize,
    /// Calls of the target: the files and their prefixes.
    pub runs: usize,
}

/// Runs `target` on every file of `directory` and on its prefixes. `Err` names the file and the length
/// at which it panicked or took too long, or says that there is no corpus.
pub fn replay(directory: &Path, target: fn(&[u8])) -> Result<Replay, String> {
    let entries = std::fs::read_dir(directory)
        .map_err(|error| format!("{}: no corpus: {error}", directory.display()))?;
    let mut paths: Vec<_> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("{}: {error}", directory.display()))?;
    paths.sort();
    let mut done = Replay { inputs: 0, runs: 0 };
    for path in paths {
        let input = std::fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        done.inputs += 1;
        let stride = input.len() / PREFIXES_MAX + 1;
        for length in (0..input.len()).step_by(stride).chain([input.len()]) {
            run(&input[..length], target)
                .map_err(|what| format!("{}, first {length} bytes: {what}", path.display()))?;
            done.runs += 1;
        }
    }
    if done.inputs == 0 {
        return Err(format!("{}: the corpus is empty", directory.display()));
    }
    Ok(done)
}

fn run(input: &[u8], target: fn(&[u8])) -> Result<(), String> {
    let started = Instant::now();
    catch_unwind(AssertUnwindSafe(|| target(input))).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        format!("panicked: {}", text.unwrap_or("with no text"))
    })?;
    let took = started.elapsed();
    if took > INPUT_TIME_MAX {
        return Err(format!("took {} ms", took.as_millis()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corpus(name: &str, files: &[(&str, &[u8])]) -> std::path::PathBuf {
        let directory = std::env::temp_dir().join(format!("testkit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        for (file, bytes) in files {
            std::fs::write(directory.join(file), bytes).unwrap();
        }
        directory
    }

    #[test]
    fn every_file_and_every_prefix_runs() {
        let directory = corpus("all", &[("a", b"abc"), ("b", b"")]);
        assert_eq!(replay(&directory, |_| ()), Ok(Replay { inputs: 2, runs: 5 }));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_panic_on_a_prefix_is_found_and_named() {
        let directory = corpus("panic", &[("bad", b"abc")]);
        let error = replay(&directory, |input| assert_ne!(input, b"ab")).unwrap_err();
        assert!(error.contains("bad, first 2 bytes: panicked"), "{error}");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_missing_or_empty_corpus_is_an_error() {
        let directory = corpus("empty", &[]);
        assert!(replay(&directory, |_| ()).unwrap_err().contains("is empty"));
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(replay(&directory, |_| ()).unwrap_err().contains("no corpus"));
    }
}
