//! Ranks: a crate imports only crates of a lower rank, the document lists exactly the crates of the tree,
//! and what is there for tests only does not ship.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::Problems;
use crate::architecture::Crate;
use crate::tree::File;

/// A package of the workspace with its imports from the workspace.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// All that it depends on.
    pub dependencies: Vec<Dependency>,
}

/// One dependency of a package.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The package depended on.
    pub name: String,
    /// None, or `dev` or `build`.
    pub kind: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The packages of the workspace at `root`, by `cargo metadata`.
pub fn packages(root: &Path) -> Result<Vec<Package>, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    Ok(metadata.packages)
}

/// Checks the packages against the document.
pub fn check(documented: &[Crate], packages: &[Package]) -> Problems {
    let find = |name: &str| documented.iter().find(|c| c.name == name);
    let mut problems = Problems::new();
    for package in packages {
        let Some(this) = find(&package.name) else {
            problems.push(format!("ARCHITECTURE.md does not list the crate {}", package.name));
            continue;
        };
        for dependency in &package.dependencies {
            let Some(other) = find(&dependency.name) else { continue };
            let dev = dependency.kind.as_deref() == Some("dev");
            // A helper of tests serves the lowest rank too.
            let helps = dev && !other.ships && other.rank == this.rank;
            if other.rank >= this.rank && !helps {
                problems.push(format!(
                    "{} (rank {}) imports {} (rank {}); only lower ranks may be imported",
                    this.name, this.rank, other.name, other.rank
                ));
            }
            if this.ships && !other.ships && !dev {
                problems
                    .push(format!("{} ships and imports {}, which is for tests only", this.name, other.name));
            }
        }
    }
    for documented in documented {
        if !packages.iter().any(|package| package.name == documented.name) {
            problems.push(format!("ARCHITECTURE.md lists the crate {}, which is not there", documented.name));
        }
    }
    problems
}

/// Dependencies of crates that state a version of their own: that of the workspace is the only one.
pub fn versions(files: &[File]) -> Problems {
    let manifests = files.iter().filter(|file| file.crate_name().is_some() && file.ends_with("/Cargo.toml"));
    let mut problems = Problems::new();
    for file in manifests {
        let mut in_dependencies = false;
        for (idx, line) in file.text.lines().enumerate() {
            if line.starts_with('[') {
                in_dependencies = line.contains("dependencies");
            }
            let Some((name, value)) = line.split_once(" = ").filter(|_| in_dependencies) else { continue };
            if value.starts_with('"') || value.contains("version") {
                let place = format!("{}:{}", file.path, idx + 1);
                problems.push(format!("{place}: state the version of {name} in the workspace's Cargo.toml"));
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::UnsafeIn;

    fn documented(name: &str, rank: u32, ships: bool) -> Crate {
        Crate {
            name: name.to_owned(),
            rank,
            unsafe_in: UnsafeIn::Nowhere,
            io: crate::architecture::Io::No,
            clock: false,
            ships,
        }
    }

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependency = |&(name, kind): &(&str, Option<&str>)| Dependency {
            name: name.to_owned(),
            kind: kind.map(str::to_owned),
        };
        Package { name: name.to_owned(), dependencies: dependencies.iter().map(dependency).collect() }
    }

    fn table() -> Vec<Crate> {
        vec![documented("base", 0, true), documented("flow", 2, true), documented("testkit", 0, false)]
    }

    #[test]
    fn an_orderly_workspace_passes() {
        let packages = [
            package("base", &[("serde", None), ("testkit", Some("dev"))]),
            package("flow", &[("base", None), ("testkit", Some("dev"))]),
            package("testkit", &[]),
        ];
        assert_eq!(check(&table(), &packages), Problems::new());
    }

    #[test]
    fn an_import_of_a_higher_rank_is_refused_even_in_tests() {
        let packages =
            [package("base", &[("flow", Some("dev"))]), package("flow", &[]), package("testkit", &[])];
        let problems = check(&table(), &packages);
        assert!(problems[0].contains("base (rank 0) imports flow (rank 2)"), "{problems:?}");
    }

    #[test]
    fn a_crate_for_tests_that_ships_is_refused() {
        let packages = [package("base", &[]), package("flow", &[("testkit", None)]), package("testkit", &[])];
        let problems = check(&table(), &packages);
        assert_eq!(problems, ["flow ships and imports testkit, which is for tests only"]);
    }

    #[test]
    fn a_crate_missing_on_either_side_is_refused() {
        let packages = [package("base", &[]), package("flow", &[]), package("new", &[])];
        let problems = check(&table(), &packages);
        assert_eq!(problems.len(), 2);
        assert!(problems[0].contains("new") && problems[1].contains("testkit"), "{problems:?}");
    }

    #[test]
    fn a_version_beside_the_workspaces_is_found() {
        let manifest = |text: &str| versions(&[File::new("crates/flow/Cargo.toml", text)]).len();
        assert_eq!(manifest("[package]\nname = \"flow\"\n[dependencies]\nserde.workspace = true\n"), 0);
        assert_eq!(manifest("[dependencies]\nserde = \"1\"\nlibc = { version = \"0.2\" }\n"), 2);
        assert_eq!(
            manifest("[dev-dependencies]\nserde = { workspace = true, features = [\"derive\"] }\n"),
            0
        );
    }
}
