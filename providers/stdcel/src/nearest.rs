//! Did you mean …?

/// The known name closest to a wrong one, if one is close enough to be what was meant.
pub(crate) fn nearest<'n>(wrong: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    // Long names are not typos of anything, and the distance is quadratic.
    if wrong.len() > 64 {
        return None;
    }
    let allowed = (wrong.chars().count() / 3).clamp(1, 3);
    known
        .take(10_000)
        .filter(|name| name.len().abs_diff(wrong.len()) <= 3 && *name != wrong)
        .map(|name| (distance(wrong, name), name))
        .filter(|(distance, _)| *distance <= allowed)
        .min()
        .map(|(_, name)| name)
}

/// Insertions, deletions, replacements and swaps of neighbours; case alone costs nothing.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let width = b.len() + 1;
    let mut rows = vec![vec![0; width]; a.len() + 1];
    for (at, row) in rows.iter_mut().enumerate() {
        row[0] = at;
    }
    rows[0] = (0..width).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typo_finds_its_word_and_a_stranger_finds_none() {
        let known = ["network", "net", "database"];
        assert_eq!(nearest("nett", known.into_iter()), Some("net"));
        assert_eq!(nearest("netwrok", known.into_iter()), Some("network"));
        assert_eq!(nearest("queue", known.into_iter()), None);
    }
}
