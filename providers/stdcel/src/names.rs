//! What may be a kind, a name, a label: the control plane's rules, checked here so that a graph says where it breaks them.

/// `[a-z][a-z0-9-]{0,62}`
pub(crate) fn is_kind(text: &str) -> bool {
    text.len() <= 63
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

/// 1 to 253 of `[A-Za-z0-9._-]`, a letter or digit first.
pub(crate) fn is_name(text: &str) -> bool {
    (1..=253).contains(&text.len())
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))
}

/// `[prefix/]name`
pub(crate) fn is_label_key(text: &str) -> bool {
    let (prefix, name) = text
        .rsplit_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    prefix.is_none_or(is_name) && is_name(name)
}

/// Longest value of a label, in bytes.
pub(crate) const MAX_LABEL_VALUE: usize = 256;
/// Most labels on one resource, those of the composer included.
pub(crate) const MAX_LABELS: usize = 64;
