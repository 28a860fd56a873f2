"""Messages of others' protobuf schemas, made at run time of the fields that busfare has use for."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

#: Of which no list is packed.
UNPACKED = ("string", "bytes")


def message_classes(package: str, messages: Mapping[str, str]) -> dict[str, Any]:
    """The class of each message, by its name.

    `messages`: of each its fields, as `name number type, …`. A type is a scalar of protobuf or a name of `messages`; `*`
    before it makes a list, `|` one of the fields of which a message has one (`WhichOneof("value")`). A field that is not
    listed is skipped, whatever a newer version writes there.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field in fields.split(", "):
            field_name, number, kind = field.split()
            label = kinds.LABEL_REPEATED if kind.startswith("*") else kinds.LABEL_OPTIONAL
            made = message.field.add(name=field_name, number=int(number), label=label)
            plain = kind.lstrip("*|")
            if plain in messages:
                made.type, made.type_name = kinds.TYPE_MESSAGE, f".{package}.{plain}"
            else:
                made.type = kinds.Type.Value(f"TYPE_{plain.upper()}")
                made.options.packed = kind.startswith("*") and plain not in UNPACKED
            if kind.startswith("|"):
                if not message.oneof_decl:
                    message.oneof_decl.add(name="value")
                made.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    descriptors = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    return {name: message_factory.GetMessageClass(kind) for name, kind in descriptors.items()}
