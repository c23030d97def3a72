"""compiler/jit.py and compiler/cache.py: text to code, code to disk and back."""

import ctypes
import gc
import os
import pathlib
import subprocess
import sys

import pytest

from rushlight.compiler import cache, jit

ADD = """
define i64 @{name}(i64 %a, i64 %b) {{
  %c = add i64 %a, %b
  %d = add i64 %c, {k}
  ret i64 %d
}}
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("RUSHLIGHT_CACHE", str(tmp_path))


def add_function(lib, name="f"):
    return lib.function(name, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def test_compile_and_call():
    lib = jit.compile_ir(ADD.format(name="f", k=5))
    assert add_function(lib)(2, 3) == 10
    assert lib.symbols == ("f",) and lib.address("f") > 0
    assert lib.function("f", ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, gil=True)(1, 1) == 7


def test_unknown_symbol_is_named():
    lib = jit.compile_ir(ADD.format(name="f", k=6))
    with pytest.raises(KeyError, match="'g'.*'f'"):
        lib.address("g")


def test_second_compile_returns_the_loaded_library():
    text = ADD.format(name="f", k=7)
    lib = jit.compile_ir(text)
    assert jit.compile_ir(text) is lib
    assert jit.compile_ir(text, opt=0) is not lib
    light = jit.compile_ir(text, light=True)
    assert light is not lib and add_function(light)(1, 2) == add_function(lib)(1, 2) == 10


def test_disk_hit_does_not_call_the_emitter():
    calls = []

    def text():
        calls.append(1)
        return ADD.format(name="f", k=8)

    lib = jit.compile_ir(text, key="eight")
    assert not lib.from_cache and len(calls) == 1
    del lib
    gc.collect()
    lib = jit.compile_ir(text, key="eight")
    assert lib.from_cache and len(calls) == 1
    assert add_function(lib)(1, 2) == 11


def test_function_keeps_the_code_alive():
    f = add_function(jit.compile_ir(ADD.format(name="f", k=9)))
    gc.collect()
    assert f(1, 1) == 11


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "foreign"])
def test_damaged_files_are_rebuilt(damage):
    text = ADD.format(name="f", k=10)
    lib = jit.compile_ir(text)
    del lib
    gc.collect()
    (name,) = os.listdir(cache.directory())
    path = pathlib.Path(cache.directory(), name)
    data = path.read_bytes()
    bad = {"truncate": data[:-7], "flip": data[:200] + bytes([data[200] ^ 1]) + data[201:], "empty": b"",
           "foreign": b"hello" * 100}[damage]
    path.write_bytes(bad)
    lib = jit.compile_ir(text)
    assert not lib.from_cache
    assert add_function(lib)(1, 1) == 12
    assert path.read_bytes() == data


def test_a_file_under_another_key_is_refused():
    cache.store("aa", b"object", {"exports": []})
    os.rename(os.path.join(cache.directory(), "aa.rlo"), os.path.join(cache.directory(), "bb.rlo"))
    assert cache.load("bb") is None


def test_another_process_uses_the_disk_cache():
    text = ADD.format(name="f", k=11)
    jit.compile_ir(text)
    code = (f"from rushlight.compiler import jit\nlib = jit.compile_ir({text!r})\n"
            "assert lib.from_cache and lib.address('f')")
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_cache_off(monkeypatch):
    monkeypatch.setenv("RUSHLIGHT_CACHE", "off")
    assert cache.directory() is None and cache.info().files == 0 and cache.clear() == 0
    assert add_function(jit.compile_ir(ADD.format(name="f", k=12)))(0, 0) == 12


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_directory_writable_by_others_is_not_used(tmp_path, monkeypatch):
    place = tmp_path / "open"
    (place / "objects").mkdir(parents=True)
    (place / "objects").chmod(0o777)
    monkeypatch.setenv("RUSHLIGHT_CACHE", str(place))
    assert cache.directory() is None


def test_trim_drops_the_least_recently_used():
    for i, key in enumerate(("a1", "b2", "c3")):
        assert cache.store(key, b"x" * 1000, {})
        os.utime(os.path.join(cache.directory(), key + ".rlo"), (1e9 + i, 1e9 + i))
    size = cache.info().bytes // 3
    assert cache.trim(2 * size + 10) == 1
    assert cache.load("a1") is None and cache.load("b2") is not None and cache.load("c3") is not None
    assert cache.clear() == 2 and cache.info().files == 0


def test_import_symbol():
    seen = []
    callback = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda x: seen.append(x) or x * 2)
    jit.import_symbol("rushlight_test_callback", ctypes.cast(callback, ctypes.c_void_p).value)
    lib = jit.compile_ir("""
        declare i64 @rushlight_test_callback(i64)
        define i64 @f(i64 %x) {
          %y = call i64 @rushlight_test_callback(i64 %x)
          ret i64 %y
        }""")
    assert lib.function("f", ctypes.c_int64, ctypes.c_int64)(21) == 42 and seen == [21]
    with pytest.raises(ValueError, match="null"):
        jit.import_symbol("nothing", 0)


def test_libm_resolves_and_missing_symbols_are_named():
    lib = jit.compile_ir("""
        declare double @lgamma(double)
        define double @f(double %x) {
          %y = call double @lgamma(double %x)
          ret double %y
        }""")
    assert lib.function("f", ctypes.c_double, ctypes.c_double)(5.0) == pytest.approx(3.178053830347946, rel=1e-15)
    with pytest.raises(RuntimeError, match="no_such_function_anywhere"):
        jit.compile_ir("""
            declare double @no_such_function_anywhere(double)
            define double @f(double %x) {
              %y = call double @no_such_function_anywhere(double %x)
              ret double %y
            }""")


def test_errors():
    with pytest.raises(ValueError, match="invalid LLVM IR"):
        jit.compile_ir("define i64 @f( {")
    with pytest.raises(ValueError, match="opt must be 0 to 3, got 4"):
        jit.compile_ir("", opt=4)


def test_without_llvmlite():
    code = """
import sys
sys.modules["llvmlite"] = None
from rushlight.compiler import jit
assert not jit.available()
try:
    jit.compile_ir("")
except ImportError as e:
    assert "pip install llvmlite" in str(e)
else:
    raise SystemExit("no error")
"""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    subprocess.run([sys.executable, "-c", code], check=True, cwd=root)


def test_host_and_views_of_code():
    h = jit.host()
    assert h["vector_bytes"] in (16, 32, 64) and h["cpu"] and h["triple"]
    text = ADD.format(name="f", k=13)
    assert "add" in jit.optimize_ir(text) and "f:" in jit.assembly(text)
