//! The generator's own part of a machine's time. Kernel interfaces hand a frame on in the thread that sends
//! it: while the generator sends, the kernel forwards, or puts frames into the queues of a switch. The
//! generator's own part is what it takes to make and send as many bursts and frames where no switch is
//! between.

use super::traffic::{Sending, Sent};

/// What sending takes with no switch between: so much for each burst, and so much for each frame of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OwnWork {
    per_burst_s: f64,
    per_frame_s: f64,
}

/// Bursts of two loads must differ by this factor to tell what a burst costs beside its frames.
const DIFFERENCE_MIN: f64 = 1.5;

impl OwnWork {
    /// From two loads with no switch between: one in short bursts, and one in bursts as long as they get.
    pub fn of(short: &Sending, long: &Sending) -> OwnWork {
        let per_frame = |of: &Sending| of.seconds / of.frames;
        let bursts = |of: &Sending| of.bursts / of.frames;
        let all = per_frame(short);
        if bursts(short) < bursts(long) * DIFFERENCE_MIN {
            return OwnWork { per_burst_s: 0.0, per_frame_s: all };
        }
        let per_burst_s = (all - per_frame(long)) / (bursts(short) - bursts(long));
        // A frame takes something, and so does a burst: what is below is noise.
        let per_burst_s = per_burst_s.clamp(0.0, all / bursts(short));
        OwnWork { per_burst_s, per_frame_s: all - per_burst_s * bursts(short) }
    }

    /// The part of a machine's busy time that is not the generator's: without its waits, its work on frames
    /// that came back, and its own part of sending. `None` if the generator does not know how long it sent.
    pub fn rest_of(&self, busy_s: f64, sent: &Sent) -> Option<f64> {
        let Sending { seconds, bursts, frames } = sent.sending?;
        let own_s = self.per_burst_s * bursts + self.per_frame_s * frames;
        Some((busy_s - (sent.cpu_s - seconds) - own_s).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sending(seconds: f64, bursts: f64, frames: f64) -> Sending {
        Sending { seconds, bursts, frames }
    }

    #[test]
    fn what_a_burst_costs_is_told_from_what_its_frames_cost() {
        // 2 us a burst and 1 us a frame.
        let short = sending(0.003, 1_000.0, 1_000.0);
        let long = sending(0.034, 1_000.0, 32_000.0);
        let own = OwnWork::of(&short, &long);
        assert!((own.per_burst_s - 2e-6).abs() < 1e-12 && (own.per_frame_s - 1e-6).abs() < 1e-12, "{own:?}");
        // Bursts of one length do not tell.
        let own = OwnWork::of(&short, &sending(0.004, 1_000.0, 1_100.0));
        assert_eq!(own, OwnWork { per_burst_s: 0.0, per_frame_s: 3e-6 });
        // Neither is cheaper than nothing.
        let own = OwnWork::of(&short, &sending(0.2, 1_000.0, 32_000.0));
        assert_eq!(own, OwnWork { per_burst_s: 0.0, per_frame_s: 3e-6 });
        let own = OwnWork::of(&short, &sending(0.000_1, 1_000.0, 32_000.0));
        assert_eq!(own, OwnWork { per_burst_s: 3e-6, per_frame_s: 0.0 });
    }

    #[test]
    fn the_time_in_which_the_generator_sends_is_the_switch_s_but_for_what_sending_takes_alone() {
        let own = OwnWork { per_burst_s: 0.0, per_frame_s: 1e-6 };
        let of = |sending| Sent { cpu_s: 1.0, sending: Some(sending), ..Sent::default() };
        let alone = of(sending(0.1, 1.0, 100_000.0));
        let is_near = |rest: Option<f64>, s: f64| rest.is_some_and(|rest| (rest - s).abs() < 1e-9);
        // Nothing but the generator ran, and it waited for most of the time.
        assert!(is_near(own.rest_of(1.0, &alone), 0.0));
        // The kernel forwarded while it sent, and another processor was busy for 0.2 s.
        assert!(is_near(own.rest_of(1.2, &of(sending(0.35, 1.0, 100_000.0))), 0.45));
        assert!(is_near(own.rest_of(1.0, &of(sending(0.35, 1.0, 200_000.0))), 0.15));
        // Less than nothing is an error of the clocks.
        assert!(is_near(own.rest_of(0.9, &alone), 0.0));
        assert_eq!(own.rest_of(1.0, &Sent { sending: None, ..alone }), None);
    }
}
