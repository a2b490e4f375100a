//! The figures of a running switch.

use std::time::Instant;
use transport::unixctl::Client;
use vswitchd::figures::Figures;

/// Its figures at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// When, by our own clock.
    pub at: Instant,
    /// Its counters.
    pub figures: Figures,
}

impl Sample {
    /// Asks a switch. The error is a sentence.
    pub fn take(client: &mut Client) -> Result<Sample, String> {
        const COMMAND: &str = "crosspoint/figures";
        let at = Instant::now();
        let refused = |text: String| format!("{COMMAND}: {}", text.trim());
        let text = client.run(COMMAND, &[]).map_err(|e| e.to_string())?.map_err(refused)?;
        Ok(Sample { at, figures: Figures::parse(&text).map_err(refused)? })
    }
}
