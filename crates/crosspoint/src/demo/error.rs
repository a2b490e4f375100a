//! Why the demo ended early.

/// See the module documentation.
#[derive(Debug)]
pub enum DemoError {
    /// A signal asked for it.
    Interrupted,
    /// Something went wrong: a sentence for the user.
    Failed(String),
}

impl DemoError {
    /// A failure.
    pub fn new(why: impl Into<String>) -> DemoError {
        DemoError::Failed(why.into())
    }
}

impl From<std::io::Error> for DemoError {
    fn from(error: std::io::Error) -> DemoError {
        DemoError::Failed(error.to_string())
    }
}
