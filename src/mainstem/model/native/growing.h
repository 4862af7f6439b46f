/* Columns that grow, as Arrow lays them out; what is finished is a bytes object. */

#ifndef MAINSTEM_GROWING_H
#define MAINSTEM_GROWING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#define COLUMN_BYTES_MAX INT32_MAX

typedef struct {
    PyObject *bytes; /* a bytes object that nobody else has seen yet */
    Py_ssize_t used;
} Column;

static inline int
column_open(Column *column, Py_ssize_t size)
{
    column->used = 0;
    column->bytes = PyBytes_FromStringAndSize(NULL, size < 64 ? 64 : size);
    return column->bytes == NULL ? -1 : 0;
}

static inline int
column_reserve(Column *column, Py_ssize_t size)
{
    Py_ssize_t wanted = column->used + size;
    Py_ssize_t capacity = PyBytes_GET_SIZE(column->bytes);
    if (size < 0 || wanted < 0) {
        PyErr_NoMemory();
        return -1;
    }
    if (wanted <= capacity) {
        return 0;
    }
    capacity += capacity / 2;
    return _PyBytes_Resize(&column->bytes, wanted > capacity ? wanted : capacity);
}

static inline char *
column_end(Column *column)
{
    return PyBytes_AS_STRING(column->bytes) + column->used;
}

static inline int
column_put(Column *column, const void *data, Py_ssize_t size)
{
    if (size > PyBytes_GET_SIZE(column->bytes) - column->used && column_reserve(column, size) < 0) {
        return -1;
    }
    memcpy(column_end(column), data, (size_t)size);
    column->used += size;
    return 0;
}

/* The finished bytes; the column gives its reference away. */
static inline PyObject *
column_close(Column *column)
{
    PyObject *bytes;
    if (column->bytes != NULL && PyBytes_GET_SIZE(column->bytes) != column->used) {
        _PyBytes_Resize(&column->bytes, column->used);
    }
    bytes = column->bytes;
    column->bytes = NULL;
    return bytes;
}

typedef struct {
    Column bits;
    Py_ssize_t count;
    Py_ssize_t nulls;
} Validity;

static inline int
validity_open(Validity *validity, Py_ssize_t rows)
{
    validity->count = validity->nulls = 0;
    return column_open(&validity->bits, rows / 8 + 1);
}

static inline int
validity_put(Validity *validity, int is_there)
{
    Py_ssize_t place = validity->count >> 3;
    if (place >= validity->bits.used) {
        uint8_t zero = 0;
        if (column_put(&validity->bits, &zero, 1) < 0) {
            return -1;
        }
    }
    if (is_there) {
        PyBytes_AS_STRING(validity->bits.bytes)[place] |= (char)(1 << (validity->count & 7));
    } else {
        validity->nulls++;
    }
    validity->count++;
    return 0;
}

static inline PyObject *
validity_close(Validity *validity)
{
    if (validity->nulls == 0) {
        Py_CLEAR(validity->bits.bytes);
        Py_RETURN_NONE;
    }
    return column_close(&validity->bits);
}

/* A column of byte strings, as Arrow lays it out. */
typedef struct {
    Validity validity;
    Column offsets;
    Column data;
} Strings;

static inline int
strings_open(Strings *strings, Py_ssize_t rows, Py_ssize_t size)
{
    int32_t zero = 0;
    if (validity_open(&strings->validity, rows) < 0 ||
        column_open(&strings->offsets, (rows + 1) * 4) < 0 ||
        column_open(&strings->data, size) < 0) {
        return -1;
    }
    return column_put(&strings->offsets, &zero, 4);
}

static inline int
strings_put(Strings *strings, const void *data, int64_t size)
{
    int32_t end;
    if (size > 0) {
        if (size > COLUMN_BYTES_MAX - strings->data.used) {
            PyErr_SetString(PyExc_OverflowError, "a column has more than 2 GiB");
            return -1;
        }
        if (column_put(&strings->data, data, (Py_ssize_t)size) < 0) {
            return -1;
        }
    }
    end = (int32_t)strings->data.used;
    if (column_put(&strings->offsets, &end, 4) < 0) {
        return -1;
    }
    return validity_put(&strings->validity, size >= 0);
}

static inline void
strings_drop(Strings *strings)
{
    Py_CLEAR(strings->validity.bits.bytes);
    Py_CLEAR(strings->offsets.bytes);
    Py_CLEAR(strings->data.bytes);
}

static inline PyObject *
strings_close(Strings *strings)
{
    return Py_BuildValue("(NNN)", validity_close(&strings->validity),
                         column_close(&strings->offsets), column_close(&strings->data));
}

#endif
