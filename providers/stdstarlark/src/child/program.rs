//! Loads a program and calls it.
//!
//! Files are parsed and ordered before anything runs, without recursion over the load graph, so that every missing
//! file, load cycle and syntax error of the program is reported at once and a chain of 2,000 files costs no stack.
//! Each run starts from the sources: no module, value or glob is kept for the next.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use starlark::PrintHandler;
use starlark::docs::{DocItem, DocMember};
use starlark::environment::{FrozenModule, Globals, Module};
use starlark::eval::{Evaluator, ReturnFileLoader};
use starlark::syntax::{AstModule, Dialect};
use starlark::values::{FrozenHeapName, OwnedFrozenValue, Value};

use super::json_in::{self, Frozen};
use super::recursion::{self, Watch};
use super::value::Object;
use super::{builtins, diagnostic, globals, shape};
use crate::bundle::ENTRY_POINT;
use crate::limits;
use crate::protocol::{Composed, Request, Task};

/// Why a run gave no result. The text is for people and is complete.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The program or what it returned is wrong.
    Refused(String),
    /// The program ran over a bound.
    OverLimit(String),
}

/// Runs a request.
///
/// # Errors
/// [`Failure`]; problems that can be found without running each other's code come together.
pub(crate) fn run(request: &Request, print: &dyn PrintHandler) -> Result<Composed, Failure> {
    builtins::forget();
    let mut program = Program {
        globals: builtins::globals(),
        modules: HashMap::new(),
        watch: Rc::new(RefCell::new(Watch::default())),
        steps: limits::STEPS,
        print,
    };
    let roots: Vec<&str> = match request.task {
        Task::Compose => vec![ENTRY_POINT],
        Task::Check => request.files.keys().map(String::as_str).collect(),
    };
    for (name, ast) in order(&request.files, &roots)? {
        program.load(&name, ast)?;
    }
    let compose = program.compose()?;
    match request.task {
        Task::Compose => program.call(&compose, request),
        Task::Check => Ok(Composed::default()),
    }
}

/// The language as Bazel and Go have it: no recursion, no global reassignment, no statements but definitions, loads and
/// expressions at the top level.
fn dialect() -> Dialect {
    Dialect {
        enable_keyword_only_arguments: true,
        enable_load_reexport: false,
        ..Dialect::Standard
    }
}

/// Parses what is reachable from the roots and puts it into the order in which it can be loaded.
fn order(
    files: &BTreeMap<String, String>,
    roots: &[&str],
) -> Result<Vec<(String, AstModule)>, Failure> {
    let mut parsed: HashMap<String, AstModule> = HashMap::new();
    let mut done: Vec<String> = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    let mut state: HashMap<String, State> = HashMap::new();
    let mut work: Vec<Step> = roots
        .iter()
        .rev()
        .map(|root| Step::Enter((*root).to_owned()))
        .collect();
    let mut path: Vec<String> = Vec::new();
    while let Some(step) = work.pop() {
        let name = match step {
            Step::Leave(name) => {
                path.pop();
                state.insert(name.clone(), State::Done);
                done.push(name);
                continue;
            }
            Step::Enter(name) => name,
        };
        if state.contains_key(&name) {
            continue;
        }
        state.insert(name.clone(), State::Open);
        let source = files.get(&name).cloned().unwrap_or_default();
        let ast = match AstModule::parse(&name, source, &dialect()) {
            Ok(ast) => ast,
            Err(error) => {
                problems.push(diagnostic::render(&error));
                state.insert(name, State::Done);
                continue;
            }
        };
        problems.extend(globals::reassigned(&ast));
        path.push(name.clone());
        work.push(Step::Leave(name.clone()));
        for load in ast.loads().iter().rev() {
            if !files.contains_key(load.module_id) {
                problems.push(diagnostic::at(&load.span, &missing(load.module_id, files)));
            } else if let Some(from) = path.iter().position(|open| open == load.module_id) {
                let cycle = path[from..].join(" -> ");
                problems.push(diagnostic::at(
                    &load.span,
                    &format!("load cycle: {cycle} -> {}", load.module_id),
                ));
            } else {
                work.push(Step::Enter(load.module_id.to_owned()));
            }
        }
        parsed.insert(name, ast);
        if problems.len() > limits::PROBLEMS {
            break;
        }
    }
    if !problems.is_empty() {
        return Err(Failure::Refused(shape::listed(&problems)));
    }
    Ok(done
        .into_iter()
        .filter_map(|name| parsed.remove(&name).map(|ast| (name, ast)))
        .collect())
}

enum Step {
    Enter(String),
    Leave(String),
}

enum State {
    Open,
    Done,
}

fn missing(name: &str, files: &BTreeMap<String, String>) -> String {
    let near = files
        .keys()
        .map(|file| (strsim::jaro_winkler(file, name), file))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match near {
        Some((_, near)) => format!("the bundle has no file {name:?}; did you mean {near:?}?"),
        None => format!(
            "the bundle has no file {name:?}; files are loaded by their path from the bundle's root"
        ),
    }
}

struct Program<'p> {
    globals: Globals,
    modules: HashMap<String, FrozenModule>,
    watch: Rc<RefCell<Watch>>,
    /// Steps that are left for the rest of the run.
    steps: u64,
    print: &'p dyn PrintHandler,
}

impl Program<'_> {
    /// Runs a file whose loads have all run, and keeps its frozen globals.
    fn load(&mut self, name: &str, ast: AstModule) -> Result<(), Failure> {
        self.watch.borrow_mut().learn(name, &ast);
        let names: Vec<String> = ast
            .loads()
            .iter()
            .map(|load| load.module_id.to_owned())
            .collect();
        let loaded: HashMap<&str, &FrozenModule> = names
            .iter()
            .filter_map(|name| self.modules.get_key_value(name))
            .map(|(name, module)| (name.as_str(), module))
            .collect();
        let loader = ReturnFileLoader { modules: &loaded };
        let (frozen, steps) = Module::with_temp_heap(|module| {
            let steps = {
                let mut eval = self.evaluator(&module)?;
                eval.set_loader(&loader);
                let result = eval.eval_module(ast, &self.globals);
                self.finish(result, &eval)?;
                eval.get_total_tick_count()
            };
            let frozen = module
                .freeze_named(FrozenHeapName::User(Box::new(name.to_owned())))
                .map_err(|error| {
                    Failure::Refused(diagnostic::clip(&format!("{name}: {error:?}")))
                })?;
            Ok((frozen, steps))
        })?;
        self.steps = self.steps.saturating_sub(steps).max(1);
        self.modules.insert(name.to_owned(), frozen);
        Ok(())
    }

    /// The function to call.
    fn compose(&self) -> Result<OwnedFrozenValue, Failure> {
        let refuse = |problem: &str| {
            Err(Failure::Refused(format!(
                "{ENTRY_POINT} {problem}; it must define: def compose(spec, config)"
            )))
        };
        let module = self.modules.get(ENTRY_POINT);
        let Some(value) = module.and_then(|module| module.get_option("compose").ok().flatten())
        else {
            return refuse("defines no compose");
        };
        if value.value().get_type() != "function" {
            return refuse(&format!(
                "defines compose as a {}",
                super::json_out::type_name(value.value())
            ));
        }
        let Some((least, most)) = arity(value.value()) else {
            return Ok(value);
        };
        if least > 3 || most < 2 {
            return refuse(&format!(
                "defines compose with {least} required and {most} possible positional parameters"
            ));
        }
        Ok(value)
    }

    fn call(&self, compose: &OwnedFrozenValue, request: &Request) -> Result<Composed, Failure> {
        Module::with_temp_heap(|module| {
            let build = Frozen(module.frozen_heap());
            let document = |name: &str, text: &str| {
                json_in::read(&build, text)
                    .map_err(|problem| Failure::Refused(format!("{name}{problem}")))
            };
            let spec = document("spec ", request.spec.get())?;
            let config = document("config ", request.config.get())?;
            let mut arguments = vec![spec.to_value(), config.to_value()];
            if arity(compose.value()).is_some_and(|(_, most)| most >= 3) {
                arguments.push(meta(&build, request).to_value());
            }
            let compose = module.heap().access_owned_frozen_value(compose);
            let mut eval = self.evaluator(&module)?;
            let result = eval.eval_function(compose, &arguments, &[]);
            let value = self.finish(result, &eval)?;
            shape::check(value).map_err(Failure::Refused)
        })
    }

    fn evaluator<'v, 'a, 'e>(
        &'a self,
        module: &'a Module<'v>,
    ) -> Result<Evaluator<'v, 'a, 'e>, Failure>
    where
        'a: 'e,
    {
        let mut eval = Evaluator::new(module);
        let set = eval
            .set_max_tick_count(self.steps)
            .and_then(|()| eval.set_max_heap_size(limits::HEAP_BYTES))
            .and_then(|()| eval.set_max_callstack_size(limits::FRAMES));
        set.map_err(|error| Failure::Refused(format!("the interpreter took no limits: {error}")))?;
        eval.set_print_handler(self.print);
        recursion::install(&mut eval, &self.watch);
        Ok(eval)
    }

    /// Tells running over a bound from a fault of the program, and says where it was.
    fn finish<'v>(
        &self,
        result: starlark::Result<Value<'v>>,
        eval: &Evaluator<'v, '_, '_>,
    ) -> Result<Value<'v>, Failure> {
        let error = match result {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let over = if eval.get_total_tick_count() > self.steps {
            Some(format!(
                "the program took more than {} steps (calls and loop turns)",
                limits::STEPS
            ))
        } else if recursion::heap_bytes(eval) > limits::HEAP_BYTES {
            Some(format!(
                "the program's values took more than {} MiB",
                limits::HEAP_BYTES >> 20
            ))
        } else {
            None
        };
        let watch = self.watch.borrow();
        Err(match over {
            Some(over) => {
                let place = watch.last().map_or_else(String::new, |span| {
                    format!("; it was at {}", diagnostic::place(span))
                });
                Failure::OverLimit(format!("{over}{place}"))
            }
            None => Failure::Refused(diagnostic::render(&error)),
        })
    }
}

/// How many positional parameters a function needs, and how many it can take.
fn arity(value: Value<'_>) -> Option<(usize, usize)> {
    let DocItem::Member(DocMember::Function(function)) = value.documentation() else {
        return None;
    };
    let positional = || {
        function
            .params
            .pos_only
            .iter()
            .chain(&function.params.pos_or_named)
    };
    let required = positional()
        .filter(|parameter| parameter.default_value.is_none())
        .count();
    Some((required, positional().count()))
}

fn meta(build: &Frozen<'_>, request: &Request) -> starlark::values::FrozenValue {
    let heap = build.0;
    let labels = request
        .meta
        .labels
        .iter()
        .map(|(key, value)| (heap.alloc_str(key), heap.alloc(value.as_str())));
    let labels = heap.alloc(Object::new(labels));
    let text = |key: &str, value: &str| (heap.alloc_str(key), heap.alloc(value));
    heap.alloc(Object::new([
        text("name", &request.meta.name),
        text("kind", &request.meta.kind),
        text("uid", &request.meta.uid),
        (heap.alloc_str("labels"), labels),
    ]))
}
