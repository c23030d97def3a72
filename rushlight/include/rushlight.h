/* The memory of tensors for C and C++ code that is called from Python. Everything is in this header; see docs/extending.md.
 *
 * A function gets tensors as Python objects. rl_read() fills in where the elements are; what it read is valid as long as the
 * tensor lives and is not resized. Element (i, j) of a float32 matrix t is
 *
 *     ((float *)t.data)[i * t.strides[0] + j * t.strides[1]]
 */
#ifndef RUSHLIGHT_H
#define RUSHLIGHT_H

#ifndef PY_SSIZE_T_CLEAN
#define PY_SSIZE_T_CLEAN
#endif
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define RL_MAX_DIM 64

typedef enum {
    RL_UINT8, RL_INT8, RL_INT16, RL_INT32, RL_INT64, RL_FLOAT16, RL_FLOAT32, RL_FLOAT64, RL_COMPLEX32, RL_COMPLEX64,
    RL_COMPLEX128, RL_BOOL, RL_BFLOAT16, RL_UINT16, RL_UINT32, RL_UINT64, RL_OTHER
} rl_dtype;

typedef struct {
    void *data;                     /* the first element; NULL if there is none */
    rl_dtype dtype;
    int64_t itemsize;               /* bytes of an element */
    int64_t numel;                  /* number of elements */
    int ndim;
    int64_t sizes[RL_MAX_DIM];
    int64_t strides[RL_MAX_DIM];    /* in elements */
} rl_tensor;

static inline int rl__long(PyObject *tensor, const char *method, int64_t *out) {
    PyObject *r = PyObject_CallMethod(tensor, method, NULL);
    if (r == NULL) return -1;
    *out = (int64_t)PyLong_AsLongLong(r);
    Py_DECREF(r);
    return *out == -1 && PyErr_Occurred() ? -1 : 0;
}

static inline int rl__longs(PyObject *tensor, const char *method, int ndim, int64_t *out) {
    PyObject *r = PyObject_CallMethod(tensor, method, NULL);
    int i, bad = 0;
    if (r == NULL) return -1;
    if (!PyTuple_Check(r) || PyTuple_GET_SIZE(r) != ndim) {
        PyErr_Format(PyExc_TypeError, "%s() gave no tuple of %d sizes", method, ndim);
        bad = 1;
    }
    for (i = 0; i < ndim && !bad; i++) {
        out[i] = (int64_t)PyLong_AsLongLong(PyTuple_GET_ITEM(r, i));
        bad = out[i] == -1 && PyErr_Occurred();
    }
    Py_DECREF(r);
    return bad ? -1 : 0;
}

static inline int rl__dtype(PyObject *tensor, rl_dtype *out) {
    static const char *const names[] = {"uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
                                        "complex64", "complex128", "bool", "bfloat16", "uint16", "uint32", "uint64"};
    PyObject *d = PyObject_GetAttrString(tensor, "dtype"), *text = d == NULL ? NULL : PyObject_Str(d);
    const char *name = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    int i;
    Py_XDECREF(d);
    if (name == NULL) {
        Py_XDECREF(text);
        return -1;
    }
    if (strncmp(name, "torch.", 6) == 0) name += 6;
    for (i = 0; i < (int)RL_OTHER && strcmp(name, names[i]) != 0; i++) {}
    *out = (rl_dtype)i;
    Py_DECREF(text);
    return 0;
}

/* Whether a tensor's elements lie in this process's memory, one stride a dimension: 0, or -1 with a TypeError that names what it is. */
static inline int rl__in_memory(PyObject *tensor) {
    PyObject *device = PyObject_GetAttrString(tensor, "device"), *where = device == NULL ? NULL : PyObject_Str(device);
    PyObject *layout = where == NULL ? NULL : PyObject_GetAttrString(tensor, "layout"), *how = layout == NULL ? NULL : PyObject_Str(layout);
    const char *place = how == NULL ? NULL : PyUnicode_AsUTF8(where), *form = place == NULL ? NULL : PyUnicode_AsUTF8(how);
    int good = form != NULL && strcmp(place, "cpu") == 0 && strcmp(form, "torch.strided") == 0;
    if (form != NULL && !good)
        PyErr_Format(PyExc_TypeError, "expected a dense tensor on the CPU, got one on device '%s' with layout %s", place, form);
    Py_XDECREF(device);
    Py_XDECREF(where);
    Py_XDECREF(layout);
    Py_XDECREF(how);
    return good ? 0 : -1;
}

/* Where the elements of a tensor are. 0, or -1 with a Python exception set: a TypeError for what is not a dense tensor on the CPU (meta and
 * sparse tensors, other devices). */
static inline int rl_read(PyObject *tensor, rl_tensor *out) {
    int64_t ndim, address;
    if (!PyObject_HasAttrString(tensor, "data_ptr")) {
        PyErr_Format(PyExc_TypeError, "expected a Tensor, got %s", Py_TYPE(tensor)->tp_name);
        return -1;
    }
    if (rl__in_memory(tensor) || rl__long(tensor, "dim", &ndim) || rl__long(tensor, "numel", &out->numel) || rl__long(tensor, "element_size", &out->itemsize) ||
        rl__long(tensor, "data_ptr", &address) || rl__dtype(tensor, &out->dtype))
        return -1;
    if (ndim > RL_MAX_DIM) {
        PyErr_Format(PyExc_ValueError, "expected at most %d dimensions, got %lld", RL_MAX_DIM, (long long)ndim);
        return -1;
    }
    out->ndim = (int)ndim;
    out->data = (void *)(intptr_t)address;
    return rl__longs(tensor, "size", out->ndim, out->sizes) || rl__longs(tensor, "stride", out->ndim, out->strides) ? -1 : 0;
}

/* Whether the elements lie one after the other in row-major order. */
static inline int rl_is_contiguous(const rl_tensor *t) {
    int64_t step = 1;
    int i;
    for (i = t->ndim - 1; i >= 0; i--) {
        if (t->sizes[i] != 1 && t->strides[i] != step && t->numel) return 0;
        step *= t->sizes[i];
    }
    return 1;
}

/* A new tensor of the same sizes and dtype, row-major, its elements as they come, without history. NULL with a Python exception set. */
static inline PyObject *rl_empty_like(PyObject *tensor) {
    PyObject *sizes = PyObject_CallMethod(tensor, "size", NULL), *r;
    if (sizes == NULL) return NULL;
    r = PyObject_CallMethod(tensor, "new_empty", "(O)", sizes);
    Py_DECREF(sizes);
    return r;
}

/* To be called after C code has written to a tensor: backward then notices if it needed the old values. 0, or -1. */
static inline int rl_wrote(PyObject *tensor) {
    PyObject *module = PyImport_ImportModule("rushlight.autograd.graph");
    PyObject *r = module == NULL ? NULL : PyObject_CallMethod(module, "increment_version", "(O)", tensor);
    Py_XDECREF(module);
    Py_XDECREF(r);
    return r == NULL ? -1 : 0;
}

#endif
