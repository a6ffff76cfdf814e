"""The structs and functions that the dispatcher takes for granted are those of jaxlib's header."""

import re
from pathlib import Path

import jax
import pytest

pytestmark = pytest.mark.smoke

HEADER = Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"


def fields(struct: str) -> list[str]:
    """Names of a C struct's fields in order."""
    text = re.sub(r"//.*", "", HEADER.read_text(encoding="utf-8"))
    body = re.search(rf"struct {struct} {{(.*?)}}", text, re.DOTALL)
    assert body is not None, struct
    found = re.findall(r"\(\*(\w+)\)\([^)]*\);|(\w+);|FIELD\((\w+)\);", body.group(1))
    return [a or b or c for a, b, c in found]


def test_this_jaxlib_accepts_the_version_that_the_dispatcher_speaks() -> None:
    """The dispatcher says 0.3, the version of jaxlib 0.10.2; later minor versions accept it."""
    text = HEADER.read_text(encoding="utf-8")
    major, minor = map(int, re.findall(r"#define XLA_FFI_API_(?:MAJOR|MINOR) (\d+)", text))
    assert major == 0
    assert minor >= 3


@pytest.mark.parametrize(
    ("struct", "expected"),
    [
        ("XLA_FFI_CallFrame", "struct_size extension_start api ctx stage args rets attrs future"),
        ("XLA_FFI_Args", "struct_size extension_start size types args"),
        ("XLA_FFI_Rets", "struct_size extension_start size types rets"),
        ("XLA_FFI_Attrs", "struct_size extension_start size types names attrs"),
        ("XLA_FFI_Buffer", "struct_size extension_start dtype data rank dims"),
        ("XLA_FFI_ByteSpan", "ptr len"),
        ("XLA_FFI_Scalar", "dtype value"),
        ("XLA_FFI_Api_Version", "struct_size extension_start major_version minor_version"),
        ("XLA_FFI_Metadata", "struct_size api_version traits state_type_id"),
        ("XLA_FFI_Metadata_Extension", "extension_base metadata"),
        ("XLA_FFI_Error_Create_Args", "struct_size extension_start message errc"),
        ("XLA_FFI_Error_Destroy_Args", "struct_size extension_start error"),
        ("XLA_FFI_State_Set_Args", "struct_size extension_start ctx stage type_id state"),
        ("XLA_FFI_State_Get_Args", "struct_size extension_start ctx stage type_id state"),
        ("XLA_FFI_ThreadPool_Schedule_Args", "struct_size extension_start ctx task data"),
        ("XLA_FFI_ThreadPool_NumThreads_Args", "struct_size extension_start ctx num_threads"),
        ("XLA_FFI_TypeInfo", "struct_size extension_start deleter"),
    ],
)
def test_the_structs_of_the_dispatcher_are_those_of_the_header(struct: str, expected: str) -> None:
    assert fields(struct) == expected.split()


def test_the_structs_of_the_handshake_begin_with_those_fields_under_either_name() -> None:
    """jaxlib 0.11 calls `XLA_FFI_Extension_Base` of 0.10 `XLA_FFI_InternalExtension`."""
    text = HEADER.read_text(encoding="utf-8")
    names = ("XLA_FFI_Extension_Base", "XLA_FFI_InternalExtension")
    (name,) = (n for n in names if f"struct {n} {{" in text)
    assert fields(name) == ["struct_size", "type", "next"]


def test_the_functions_of_the_dispatcher_stand_where_the_header_has_them() -> None:
    functions = fields("XLA_FFI_Api")[4:]
    places = {
        0: "Error_Create", 2: "Error_Destroy", 7: "State_Set", 8: "State_Get",
        11: "ThreadPool_Schedule", 12: "ThreadPool_NumThreads",
    }  # fmt: skip
    assert {i: functions[i] for i in places} == {i: f"XLA_FFI_{n}" for i, n in places.items()}
