//! When a listener's certificate ends, and when that is worth a line.
//!
//! A certificate that has ended still encrypts, so nothing refuses to start over it: every peer will, one by one, and each says so in its
//! own log. Here it is said before that happens, once a day.

use std::time::Duration;

use rustls::pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, Error, ExtendedKeyUsageValidator, KeyPurposeIdIter};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// So long before the end it is said at the earliest; of a short life, only in its last fifth.
const SOON: Duration = Duration::from_secs(14 * 24 * 60 * 60);
/// 9999-12-31, 23:59:59: a certificate that ends then has no end (RFC 5280, 4.1.2.5).
const NEVER: Duration = Duration::from_secs(253_402_300_799);

/// From when to when a chain holds, since the epoch: from the last of its certificates' begins to the first of their ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    begins: Duration,
    ends: Duration,
}

/// What is to be said of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// It begins in so long.
    NotYet(Duration),
    /// It ends in so long.
    Soon(Duration),
    /// It ended so long ago.
    Over(Duration),
}

impl Validity {
    /// Of what cannot be read it says nothing: whoever cannot use a certificate says why.
    pub(super) fn of(chain: &[CertificateDer<'_>]) -> Self {
        let each = chain
            .iter()
            .filter_map(|one| EndEntityCert::try_from(one).ok());
        let all = Self {
            begins: Duration::ZERO,
            ends: NEVER,
        };
        each.fold(all, |so_far, one| Self {
            begins: so_far.begins.max(begin(&one).unwrap_or_default()),
            ends: so_far.ends.min(end(&one).unwrap_or(NEVER)),
        })
    }

    /// `now` since the epoch.
    pub(super) fn concern(&self, now: Duration) -> Option<Concern> {
        if let Some(ago) = now.checked_sub(self.ends) {
            return Some(Concern::Over(ago));
        }
        if let Some(wait) = self.begins.checked_sub(now).filter(|wait| !wait.is_zero()) {
            return Some(Concern::NotYet(wait));
        }
        let left = self.ends.saturating_sub(now);
        let life = self.ends.saturating_sub(self.begins);
        (left < SOON.min(life / 5)).then_some(Concern::Soon(left))
    }
}

/// Says it when it is new, and once a day.
#[derive(Debug, Default)]
pub(super) struct Reminder {
    /// What was said last, and when.
    said: Option<(std::mem::Discriminant<Concern>, Duration)>,
}

impl Reminder {
    /// What is to be said now.
    pub(super) fn due(&mut self, validity: Validity, now: Duration) -> Option<Concern> {
        let Some(concern) = validity.concern(now) else {
            self.said = None;
            return None;
        };
        let sort = std::mem::discriminant(&concern);
        let is_said = self
            .said
            .is_some_and(|(last, at)| last == sort && now.saturating_sub(at) < DAY);
        if is_said {
            return None;
        }
        self.said = Some((sort, now));
        Some(concern)
    }
}

impl Concern {
    pub(super) fn log(self, cert: &str) {
        match self {
            Self::NotYet(wait) => tracing::warn!(
                cert,
                "this certificate does not hold before {} from now: until then every peer refuses it; is the clock right?",
                about(wait)
            ),
            Self::Soon(left) => tracing::warn!(
                cert,
                "this certificate ends in {}: renew it in place, the file is read again by itself",
                about(left)
            ),
            Self::Over(ago) => tracing::warn!(
                cert,
                "this certificate ended {} ago: every peer refuses it; renew it in place, the file is read again by itself",
                about(ago)
            ),
        }
    }
}

fn about(time: Duration) -> String {
    let (count, unit) = match time.as_secs() {
        seconds if seconds >= 2 * 86_400 => (seconds / 86_400, "days"),
        seconds if seconds >= 2 * 3_600 => (seconds / 3_600, "hours"),
        seconds if seconds >= 2 * 60 => (seconds / 60, "minutes"),
        seconds => (seconds, "seconds"),
    };
    format!("{count} {unit}")
}

/// The verifier names the bound it found broken, so it is asked at a time outside it. It looks at these bounds before anything else.
fn begin(certificate: &EndEntityCert<'_>) -> Option<Duration> {
    match fault_at(certificate, Duration::ZERO)? {
        Error::CertNotValidYet { not_before, .. } => Some(since_epoch(not_before)),
        _ => None,
    }
}

fn end(certificate: &EndEntityCert<'_>) -> Option<Duration> {
    match fault_at(certificate, NEVER)? {
        Error::CertExpired { not_after, .. } => Some(since_epoch(not_after)),
        _ => None,
    }
}

fn fault_at(certificate: &EndEntityCert<'_>, at: Duration) -> Option<Error> {
    let at = UnixTime::since_unix_epoch(at);
    certificate
        .verify_for_usage(&[], &[], &[], at, AnyUsage, None, None)
        .err()
}

fn since_epoch(time: UnixTime) -> Duration {
    Duration::from_secs(time.as_secs())
}

struct AnyUsage;

impl ExtendedKeyUsageValidator for AnyUsage {
    fn validate(&self, _: KeyPurposeIdIter<'_, '_>) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    /// 2030-01-01 and 2031-01-01.
    const BEGINS: Duration = Duration::from_secs(1_893_456_000);
    const ENDS: Duration = Duration::from_secs(1_924_992_000);

    fn certificate(is_ca: bool, to: (i32, u8, u8)) -> CertificateDer<'static> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(to.0, to.1, to.2);
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let key = KeyPair::generate().unwrap();
        params.self_signed(&key).unwrap().der().clone()
    }

    #[test]
    fn a_chain_holds_until_the_first_of_its_certificates_ends() {
        let leaf = certificate(false, (2032, 1, 1));
        let intermediate = certificate(true, (2031, 1, 1));
        let expected = Validity {
            begins: BEGINS,
            ends: ENDS,
        };
        assert_eq!(
            Validity::of(&[leaf.clone(), intermediate.clone()]),
            expected
        );
        assert_eq!(Validity::of(&[intermediate, leaf]), expected);
        let odd = CertificateDer::from(b"odd".to_vec());
        assert_eq!(Validity::of(&[odd]).concern(ENDS), None);
    }

    #[test]
    fn it_is_said_in_time_and_again_every_day() {
        let validity = Validity {
            begins: BEGINS,
            ends: ENDS,
        };
        let minute = Duration::from_secs(60);
        for (at, expected) in [
            (BEGINS - minute, Some(Concern::NotYet(minute))),
            (BEGINS, None),
            (ENDS - SOON - minute, None),
            (ENDS - DAY, Some(Concern::Soon(DAY))),
            (ENDS - DAY + minute, None),
            (ENDS - minute, Some(Concern::Soon(minute))),
            (ENDS, Some(Concern::Over(Duration::ZERO))),
            (ENDS + DAY, Some(Concern::Over(DAY))),
        ] {
            let mut reminder = Reminder::default();
            if at == ENDS - DAY + minute {
                reminder.due(validity, ENDS - DAY);
            }
            assert_eq!(reminder.due(validity, at), expected, "{at:?}");
            assert_eq!(
                reminder.due(validity, at + minute / 2),
                None,
                "{at:?}, said twice"
            );
        }
    }

    #[test]
    fn of_a_short_life_only_the_last_fifth_is_soon() {
        let hour = Duration::from_secs(3_600);
        let validity = Validity {
            begins: BEGINS,
            ends: BEGINS + 5 * hour,
        };
        assert_eq!(validity.concern(BEGINS + 4 * hour), None);
        let left = hour - Duration::from_secs(1);
        assert_eq!(
            validity.concern(BEGINS + 5 * hour - left),
            Some(Concern::Soon(left))
        );
    }
}
