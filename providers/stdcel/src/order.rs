//! The order of a graph: dependencies first, listing order where that leaves a choice.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::graph::Graph;
use crate::problem::{Class, Problem};

/// Circles beyond this many are not listed.
const MAX_CYCLES: usize = 20;

/// Fills `graph.order`; reports each circle once and marks its members.
pub(crate) fn sort(graph: &mut Graph) {
    let count = graph.resources.len();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut waiting: Vec<usize> = vec![0; count];
    for (index, resource) in graph.resources.iter().enumerate() {
        for read in resource.reads.iter().filter(|read| **read != index) {
            readers[*read].push(index);
            waiting[index] += 1;
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..count)
        .filter(|at| waiting[*at] == 0)
        .map(Reverse)
        .collect();
    let mut done = vec![false; count];
    let mut cycles = 0;
    loop {
        while let Some(Reverse(index)) = ready.pop() {
            if std::mem::replace(&mut done[index], true) {
                continue;
            }
            graph.order.push(index);
            for reader in &readers[index] {
                waiting[*reader] = waiting[*reader].saturating_sub(1);
                if waiting[*reader] == 0 {
                    ready.push(Reverse(*reader));
                }
            }
        }
        let Some(start) = (0..count).find(|at| !done[*at]) else {
            return;
        };
        if cycles == MAX_CYCLES {
            return;
        }
        cycles += 1;
        let circle = circle(graph, &done, start);
        report(graph, &circle);
        // What waits for the circle is skipped when composing, as its dependency is broken; here it only must be placed.
        ready.extend(circle.into_iter().map(Reverse));
    }
}

/// A circle that the resource is in or waits for, in reading order.
fn circle(graph: &Graph, done: &[bool], start: usize) -> Vec<usize> {
    let mut path = vec![start];
    let mut position = std::collections::HashMap::from([(start, 0)]);
    let mut at = start;
    loop {
        // Whoever is not done waits for somebody who is not done either.
        let Some(next) = graph.resources[at]
            .reads
            .iter()
            .copied()
            .find(|read| *read != at && !done[*read])
        else {
            return path;
        };
        if let Some(first) = position.get(&next) {
            return path.split_off(*first);
        }
        position.insert(next, path.len());
        path.push(next);
        at = next;
    }
}

fn report(graph: &mut Graph, circle: &[usize]) {
    // The listing order of the members decides where the circle is said to begin.
    let begin = (0..circle.len()).min_by_key(|at| circle[*at]).unwrap_or(0);
    let turned: Vec<usize> = circle[begin..]
        .iter()
        .chain(&circle[..begin])
        .copied()
        .collect();
    let name = |index: &usize| graph.resources[*index].id.to_string();
    let mut names: Vec<String> = turned.iter().take(10).map(name).collect();
    if turned.len() > names.len() {
        names.push(format!("({} more)", turned.len() - names.len()));
    }
    names.extend(turned.first().map(name));
    let first = names.first().cloned().unwrap_or_default();
    let problem = Problem::new(
        Class::Cycle,
        format!(
            "the resources read each other in a circle: {}",
            names.join(" reads ")
        ),
    );
    let hint = "take one of the values from `schema.spec`, or split a resource in two";
    graph
        .problems
        .push(problem.in_resource(&first).hint(Some(hint)));
    for index in circle {
        graph.resources[*index].broken = true;
        graph.resources[*index].skipped = true;
    }
}
