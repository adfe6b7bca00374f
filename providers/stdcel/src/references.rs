//! What expressions may read: every outside name is checked against the graph, before there is an instance.

use std::sync::atomic::Ordering;

use crate::cel::scope::{Reference, references, status_read};
use crate::cel::unknown_status;
use crate::graph::{Graph, Resource};
use crate::nearest::nearest;
use crate::problem::{Class, Problem};
use crate::template::Expression;

/// Which names an expression sees besides `schema` and the ids.
struct Scope<'s> {
    /// The resource it belongs to; `None` for the graph's `status`.
    owner: Option<usize>,
    /// Variables of `forEach`, or `each`.
    locals: Vec<&'s str>,
    /// Whether the owner may read itself: only what runs after composing may.
    reads_itself: bool,
}

/// Checks every reference and notes who reads whom.
pub(crate) fn check(graph: &mut Graph) {
    let mut problems = Vec::new();
    let mut reads = Vec::with_capacity(graph.resources.len());
    let mut broken = Vec::new();
    for (index, resource) in graph.resources.iter().enumerate() {
        let before = problems.len();
        let mut seen = Vec::new();
        let scope = |locals, reads_itself| Scope {
            owner: Some(index),
            locals,
            reads_itself,
        };
        let outside = scope(Vec::new(), false);
        for condition in &resource.include_when {
            look(graph, &outside, condition, &mut seen, &mut problems);
            status(graph, &[], condition, false, &mut problems);
        }
        for (name, expression) in &resource.for_each {
            if graph.ids.contains_key(name) {
                let message = format!("the variable `{name}` has the name of a resource");
                let problem = Problem::new(Class::InvalidId, message).at("/forEach");
                problems.push(problem.hint(Some("rename one of them")));
            }
            if let Some(expression) = expression {
                look(graph, &outside, expression, &mut seen, &mut problems);
                status(graph, &[], expression, false, &mut problems);
            }
        }
        let inside = scope(
            resource.for_each.iter().map(|(name, _)| &**name).collect(),
            false,
        );
        let labels = resource.labels.iter().map(|(_, label)| label);
        for (template, moves) in std::iter::once((&resource.spec, true)).chain(
            std::iter::once(&resource.name)
                .chain(labels)
                .map(|template| (template, false)),
        ) {
            let mut leaves = Vec::new();
            template.expressions(&mut leaves);
            for leaf in leaves {
                look(graph, &inside, leaf, &mut seen, &mut problems);
                status(
                    graph,
                    &inside.locals,
                    leaf,
                    moves && leaf.whole,
                    &mut problems,
                );
            }
        }
        let after = scope(vec!["each"], true);
        for expression in &resource.ready_when {
            look(graph, &after, expression, &mut Vec::new(), &mut problems);
        }
        for problem in &mut problems[before..] {
            problem.id = Some(resource.id.to_string());
        }
        if problems.len() > before {
            broken.push(index);
        }
        seen.sort_unstable();
        seen.dedup();
        reads.push(seen);
    }
    let mut leaves = Vec::new();
    graph.status.expressions(&mut leaves);
    let scope = Scope {
        owner: None,
        locals: Vec::new(),
        reads_itself: true,
    };
    for expression in leaves {
        look(graph, &scope, expression, &mut Vec::new(), &mut problems);
    }
    for (resource, reads) in graph.resources.iter_mut().zip(reads) {
        resource.reads = reads;
    }
    for index in broken {
        graph.resources[index].broken = true;
    }
    graph.problems.extend(problems);
}

fn look(
    graph: &Graph,
    scope: &Scope<'_>,
    expression: &Expression,
    seen: &mut Vec<usize>,
    problems: &mut Vec<Problem>,
) {
    for reference in references(&expression.expr) {
        let name = reference.name;
        if scope.locals.contains(&name) {
            continue;
        }
        let problem = if name == "schema" {
            section(
                &reference,
                &["spec", "metadata"],
                &["name", "labels", "uid"],
            )
        } else if let Some(&index) = graph.ids.get(name) {
            if scope.owner == Some(index) && !scope.reads_itself {
                Some((Class::SelfReference, format!("`{name}` reads itself"), None))
            } else {
                seen.push(index);
                section(
                    &reference,
                    &["spec", "status", "metadata"],
                    &["name", "labels"],
                )
            }
        } else {
            Some(unknown(graph, scope, name))
        };
        if let Some((class, message, hint)) = problem {
            expression.broken.store(true, Ordering::Relaxed);
            problems.push(
                expression
                    .wrong(class, message, reference.offset)
                    .hint(hint),
            );
        }
    }
}

/// Reads of a status that no instance can make right. What depends on a condition is left to the composing.
fn status(
    graph: &Graph,
    locals: &[&str],
    expression: &Expression,
    moves: bool,
    problems: &mut Vec<Problem>,
) {
    if expression.broken.load(Ordering::Relaxed) {
        return;
    }
    let has_status = |name: &str| {
        let single = |index: &usize| graph.resources[*index].for_each.is_empty();
        !locals.contains(&name) && graph.ids.get(name).is_some_and(single)
    };
    let Some((name, fields, offset)) = status_read(&expression.expr, moves, &has_status) else {
        return;
    };
    expression.broken.store(true, Ordering::Relaxed);
    let read = std::iter::once(name)
        .chain(fields)
        .collect::<Vec<_>>()
        .join(".");
    let fault = unknown_status(&read);
    problems.push(
        expression
            .wrong(Class::StatusInExpression, fault.to_string(), offset)
            .hint(fault.hint()),
    );
}

type Wrong = (Class, String, Option<String>);

fn section(reference: &Reference<'_>, sections: &[&str], metadata: &[&str]) -> Option<Wrong> {
    let name = reference.name;
    let list = |options: &[&str]| {
        options
            .iter()
            .map(|option| format!("`{name}.{option}`"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    match reference.fields.as_slice() {
        [first, rest @ ..] if sections.contains(first) => match rest {
            [second, ..] if *first == "metadata" && !metadata.contains(second) => {
                let near = nearest(second, metadata.iter().copied());
                let hint = near.map_or_else(
                    || format!("there is {}", metadata.join(", ")),
                    |near| format!("did you mean `{near}`?"),
                );
                Some((
                    Class::BadReference,
                    format!("`{name}.metadata` has no `{second}`"),
                    Some(hint),
                ))
            }
            _ => None,
        },
        [first, ..] => {
            let hint = match nearest(first, sections.iter().copied()) {
                Some(near) => format!("did you mean `{name}.{near}`?"),
                None => format!("there is {}", list(sections)),
            };
            Some((
                Class::BadReference,
                format!("`{name}` has no `{first}`"),
                Some(hint),
            ))
        }
        [] => {
            let message = if reference.dynamic {
                format!("which part of `{name}` is read must be written out")
            } else {
                format!("`{name}` alone is no value")
            };
            Some((
                Class::BadReference,
                message,
                Some(format!("read {}", list(sections))),
            ))
        }
    }
}

fn unknown(graph: &Graph, scope: &Scope<'_>, name: &str) -> Wrong {
    let ids = graph
        .resources
        .iter()
        .map(|resource: &Resource| &*resource.id);
    let known = ids.chain(["schema"]).chain(scope.locals.iter().copied());
    let hint = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None if name == "each" => "`each` is known in `readyWhen` only".to_owned(),
        None => "the instance is `schema.spec`, another resource is its id".to_owned(),
    };
    (
        Class::UnknownId,
        format!("nothing is called `{name}`"),
        Some(hint),
    )
}
