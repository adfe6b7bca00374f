//! Builds the address of a route: every segment is escaped, so that a name can never become a path.

use reqwest::Url;

/// `base` with `segments` and `query` added.
pub(crate) fn url(base: &Url, segments: &[&str], query: &[(&str, &str)]) -> Url {
    let mut url = base.clone();
    if let Ok(mut path) = url.path_segments_mut() {
        for segment in segments {
            // `.` and `..` would be resolved away even when escaped; no object can have such a name, and this asks for
            // one that cannot exist instead of for another route.
            match *segment {
                "." => path.push("%2E-"),
                ".." => path.push("%2E%2E-"),
                "" => path.push("-"),
                segment => path.push(segment),
            };
        }
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(segments: &[&str]) -> String {
        let base = Url::parse("http://h/api/v1").unwrap();
        url(&base, segments, &[("label", "a:b c")])
            .path()
            .to_owned()
    }

    #[test]
    fn a_name_cannot_leave_its_segment() {
        assert_eq!(
            at(&["resources", "k", "a/b?c#d"]),
            "/api/v1/resources/k/a%2Fb%3Fc%23d"
        );
        for name in ["..", ".", ""] {
            let path = at(&["resources", "k", name]);
            assert!(path.starts_with("/api/v1/resources/k/"), "{path}");
            assert!(path.len() > "/api/v1/resources/k/".len(), "{path}");
        }
    }

    #[test]
    fn a_query_is_escaped() {
        let base = Url::parse("http://h/api/v1").unwrap();
        let url = url(&base, &["resources"], &[("label", "a:b&c")]);
        assert_eq!(url.query(), Some("label=a%3Ab%26c"));
    }
}
