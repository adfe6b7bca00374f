//! Which violations the value of a pending flow can still cure.

use jsonschema::ValidationError;

use super::check::NAMED;
use crate::pointer::Pointer;

/// Keywords whose verdict at a place depends on everything below it.
fn depends_on_below(keyword: &str) -> bool {
    matches!(
        keyword,
        "anyOf"
            | "oneOf"
            | "not"
            | "if"
            | "then"
            | "else"
            | "contains"
            | "minContains"
            | "maxContains"
            | "uniqueItems"
            | "dependentRequired"
            | "dependentSchemas"
            | "dependencies"
            | "unevaluatedItems"
            | "unevaluatedProperties"
    )
}

/// Whether a violation at `at` may go away by itself when the `pending` values come.
pub(super) fn is_exempt(error: &ValidationError<'_>, at: &Pointer, pending: &[Pointer]) -> bool {
    if pending.iter().any(|pointer| pointer.is_prefix_of(at)) {
        return true;
    }
    let above_pending = |place: &Pointer| pending.iter().any(|pointer| place.is_prefix_of(pointer));
    if above_pending(at) && depends_on_below(error.kind().keyword()) {
        return true;
    }
    // A violation inside of a `then`, say, is the `if`'s doing, which may stand further up in the document than what it
    // complains about: follow the keywords that led here, with the place in the document each was applied to.
    let Ok(path) = Pointer::parse(error.evaluation_path().as_str()) else {
        return false;
    };
    let place: Vec<&str> = at.tokens().collect();
    let mut depth = 0;
    let mut keywords = path.tokens();
    while let Some(keyword) = keywords.next() {
        let here = Pointer::from_tokens(place.iter().take(depth).copied());
        if depends_on_below(keyword) && above_pending(&here) {
            return true;
        }
        // What follows these is a name or a number, not a keyword.
        if NAMED.contains(&keyword)
            || matches!(keyword, "allOf" | "anyOf" | "oneOf" | "prefixItems")
        {
            keywords.next();
        }
        depth += usize::from(matches!(
            keyword,
            "properties"
                | "patternProperties"
                | "additionalProperties"
                | "unevaluatedProperties"
                | "items"
                | "prefixItems"
                | "unevaluatedItems"
                | "contains"
        ));
    }
    false
}
