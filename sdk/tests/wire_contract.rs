//! The proto file is compared, name for name and number for number, with the table of the contract in `wire.txt`.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto};

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn field(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let type_name = short(field.type_name());
    let entry = message
        .nested_type
        .iter()
        .find(|nested| nested.name() == type_name);
    let scalar = |r#type: Type| {
        r#type
            .as_str_name()
            .trim_start_matches("TYPE_")
            .to_lowercase()
    };
    let mut text = String::new();
    if let Some(index) = field.oneof_index {
        text.push_str(&format!(
            "oneof {} ",
            message.oneof_decl[index as usize].name()
        ));
    }
    text.push_str(field.name());
    text.push(' ');
    if let Some(entry) = entry {
        let [key, value] = &entry.field[..] else {
            panic!("{entry:?}")
        };
        text.push_str(&format!(
            "map<{},{}>",
            scalar(key.r#type()),
            scalar(value.r#type())
        ));
    } else {
        if field.label() == Label::Repeated {
            text.push_str("repeated ");
        }
        match field.r#type() {
            Type::Message | Type::Enum => text.push_str(type_name),
            other => text.push_str(&scalar(other)),
        }
    }
    text.push_str(&format!(" = {}", field.number()));
    text
}

#[test]
fn the_proto_equals_the_table_of_the_contract() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/proto");
    let set = protox::compile(["converge/worker/v1/worker.proto"], [root]).unwrap();
    let [file] = &set.file[..] else {
        panic!("one file")
    };
    assert_eq!(file.package(), "converge.worker.v1");
    assert_eq!(file.syntax(), "proto3");
    let mut lines = Vec::new();
    for each in &file.enum_type {
        let values: Vec<_> = each
            .value
            .iter()
            .map(|value| format!("{} = {}", value.name(), value.number()))
            .collect();
        lines.push(format!("enum {}: {}", each.name(), values.join("; ")));
    }
    let [service] = &file.service[..] else {
        panic!("one service")
    };
    assert_eq!(service.name(), "WorkerService");
    for method in &service.method {
        let way = |streaming: bool, name: &str| {
            format!("{}{}", if streaming { "stream " } else { "" }, short(name))
        };
        lines.push(format!(
            "rpc {}: {} -> {}",
            method.name(),
            way(method.client_streaming(), method.input_type()),
            way(method.server_streaming(), method.output_type())
        ));
    }
    for message in &file.message_type {
        let fields: Vec<_> = message
            .field
            .iter()
            .map(|each| field(message, each))
            .collect();
        lines.push(format!("{}: {}", message.name(), fields.join("; ")));
    }
    let table: Vec<&str> = include_str!("wire.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .collect();
    assert_eq!(lines, table);
}
