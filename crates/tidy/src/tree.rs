//! The files of the project, without what builds and fuzzers leave in it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A text file of the project.
pub struct File {
    /// Its path from the root, with forward slashes.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl File {
    /// A file as the checks see it.
    pub fn new(path: &str, text: &str) -> File {
        File { path: path.to_owned(), text: text.to_owned() }
    }

    /// Whether its name ends so.
    pub fn ends_with(&self, end: &str) -> bool {
        self.path.ends_with(end)
    }

    /// The crate that it belongs to, by its place under `crates/`.
    pub fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether the whole file is there for tests, benches or examples alone.
    pub fn is_test(&self) -> bool {
        ["/tests/", "/benches/", "/examples/"].iter().any(|part| self.path.contains(part))
            || self.path.ends_with("/tests.rs")
            || self.path.ends_with("/build.rs")
    }
}

/// What is not the project's text: build products and git's own, by their path from the root.
const LEFT_OUT: &[&str] =
    &[".git", "target", "fuzz/target", "fuzz/artifacts", "fuzz/corpus", "bench/runs", "fuzz/coverage"];

/// Every text file under `root`, sorted by path. Files that are not UTF-8 are left out.
pub fn read(root: &Path) -> io::Result<Vec<File>> {
    let mut files = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let path = directory.join(entry.file_name());
            let name = path.to_string_lossy().into_owned();
            let kind = entry.file_type()?;
            if LEFT_OUT.contains(&name.as_str()) {
                continue; // In a linked worktree `.git` is a file.
            } else if kind.is_dir() {
                directories.push(path);
            } else if kind.is_file()
                && let Ok(text) = fs::read_to_string(entry.path())
            {
                files.push(File { path: name, text });
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_file_is_found_and_build_products_are_not() {
        let files = read(testkit::root()).unwrap();
        assert!(files.iter().any(|file| file.path == "crates/tidy/src/tree.rs"));
        assert!(!files.iter().any(|file| file.path.starts_with("target/")));
    }

    #[test]
    fn a_path_tells_crate_and_role() {
        let file = File::new("crates/flow/src/key.rs", "");
        assert_eq!(file.crate_name(), Some("flow"));
        assert!(!file.is_test());
        assert!(File::new("crates/flow/tests/oracles.rs", "").is_test());
        assert_eq!(File::new("fuzz/README.md", "").crate_name(), None);
    }
}
