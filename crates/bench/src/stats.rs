//! Figures over several turns: the middle, and how far it can be trusted.

/// The middle one of an odd number of values, the mean of the two middle ones of an even number.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// The smallest value that at least 99 of 100 do not exceed: the largest of fewer than 100 values.
pub fn p99(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (99 * sorted.len()).div_ceil(100);
    rank.checked_sub(1).map_or(f64::NAN, |n| sorted[n])
}

/// Lower bound of the 95 % confidence interval of the mean of paired ratios, by Student's t; the ratio itself
/// if there is only one pair.
pub fn lower_bound(ratios: &[f64]) -> f64 {
    bounds(ratios).0
}

/// Both bounds, see [`lower_bound`].
pub fn bounds(ratios: &[f64]) -> (f64, f64) {
    let n = ratios.len() as f64;
    let mean = ratios.iter().sum::<f64>() / n;
    if ratios.len() < 2 {
        return (mean, mean);
    }
    let variance = ratios.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = student_quantile(n - 1.0, 0.05);
    let half = t * (variance / n).sqrt();
    (mean - half, mean + half)
}

/// What a bound of so many turns is called: one turn has no spread, so nothing is certain of it.
pub fn certainty(turns: usize) -> &'static str {
    if turns < 2 { "in one turn" } else { "with 95 %" }
}

/// Upper bound of ratios by those of their inverses, so that "at most" is a lower bound too: infinite where
/// the inverses are too noisy to be above 0.
pub fn upper_bound_by_inverses(inverses: &[f64]) -> f64 {
    match lower_bound(inverses) {
        low if low > 0.0 => 1.0 / low,
        _ => f64::INFINITY,
    }
}

/// The value that Student's t with this many degrees of freedom exceeds in magnitude with this probability.
///
/// With x = sqrt(freedom) tan(angle) the density becomes cos(angle)^(freedom - 1), which is integrated by
/// Simpson's rule.
pub fn student_quantile(freedom: f64, level: f64) -> f64 {
    let integral = |to: f64| {
        const STEPS: usize = 400;
        let width = to / STEPS as f64;
        let at = |n: usize| (n as f64 * width).cos().max(0.0).powf(freedom - 1.0);
        let inner: f64 = (1..STEPS).map(|n| at(n) * if n % 2 == 1 { 4.0 } else { 2.0 }).sum();
        (at(0) + inner + at(STEPS)) * width / 3.0
    };
    let all = integral(std::f64::consts::FRAC_PI_2);
    let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if integral(middle) / all < 1.0 - level { low = middle } else { high = middle }
    }
    freedom.sqrt() * low.tan()
}

/// A number as a reader wants it: four digits that count, and at least two of a small one.
pub fn short(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if !value.is_finite() => "none".into(),
        m if m >= 1e9 => format!("{:.3}G", value / 1e9),
        m if m >= 1e6 => format!("{:.3}M", value / 1e6),
        m if m >= 1e4 => format!("{:.1}k", value / 1e3),
        m if m >= 100.0 || m == m.round() => format!("{value:.0}"),
        m if m >= 10.0 => format!("{value:.1}"),
        m if m >= 0.01 => format!("{value:.3}"),
        m => format!("{value:.*}", (1.0 - m.log10().floor()) as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_long_as_a_reader_wants_them() {
        let numbers = [0.0, 1.0, 0.1234, 12.34, 1234.0, 123_456.0, 1.5e9, f64::NAN].map(short);
        assert_eq!(numbers, ["0", "1", "0.123", "12.3", "1234", "123.5k", "1.500G", "none"]);
        assert_eq!([0.01, 0.00123, -0.000_04].map(short), ["0.010", "0.0012", "-0.000040"]);
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, level, value) in [(1.0, 0.05, 12.706), (5.0, 0.05, 2.571), (10.0, 0.001, 4.587)] {
            let found = student_quantile(freedom, level);
            assert!((found - value).abs() < 0.01, "{freedom} {level}: {found}");
        }
    }

    #[test]
    fn medians_and_bounds() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let (low, high) = bounds(&[1.0, 1.1, 0.9]);
        assert!(low < 1.0 && high > 1.0 && low > 0.7);
        assert_eq!(lower_bound(&[0.5]), 0.5);
        // Twelve values: 11 degrees of freedom, 2.201 standard errors of the mean.
        let twelve: Vec<f64> = (0..12).map(|n| f64::from(n % 2)).collect();
        assert!((lower_bound(&twelve) - (0.5 - 2.201 * (3.0 / 11.0 / 12.0_f64).sqrt())).abs() < 1e-3);
    }

    #[test]
    fn noise_that_reaches_zero_bounds_no_ratio() {
        assert_eq!(upper_bound_by_inverses(&[2.0]), 0.5);
        assert_eq!(upper_bound_by_inverses(&[0.1, 9.0]), f64::INFINITY);
        assert_eq!(upper_bound_by_inverses(&[f64::NAN, 2.0]), f64::INFINITY);
    }

    #[test]
    fn one_of_a_hundred_may_exceed_the_99th_percentile() {
        let of = |n: u32| p99(&(1..=n).map(f64::from).collect::<Vec<f64>>());
        assert_eq!([1, 2, 99, 100, 101, 200].map(of), [1.0, 2.0, 99.0, 99.0, 100.0, 198.0]);
        assert!(of(0).is_nan());
    }
}
