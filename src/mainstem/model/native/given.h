/* Columns that Python hands over, row by row, never beyond their ends. */

#ifndef MAINSTEM_GIVEN_H
#define MAINSTEM_GIVEN_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

typedef struct {
    Py_buffer validity;
    Py_buffer offsets;
    Py_buffer data;
    Py_ssize_t first; /* where the column begins in its buffers */
    Py_ssize_t rows;
    int is_there;
} Given;

static inline void
given_drop(Given *given)
{
    if (given->validity.obj != NULL) {
        PyBuffer_Release(&given->validity);
    }
    if (given->offsets.obj != NULL) {
        PyBuffer_Release(&given->offsets);
    }
    if (given->data.obj != NULL) {
        PyBuffer_Release(&given->data);
    }
}

/* A column (validity, offsets, data, first, rows); None is a column without any value. */
static inline int
given_open(Given *given, PyObject *column)
{
    PyObject *validity, *offsets, *data;
    memset(given, 0, sizeof *given);
    if (column == Py_None) {
        return 0;
    }
    if (!PyArg_ParseTuple(column, "OOOnn;a column", &validity, &offsets, &data, &given->first,
                          &given->rows)) {
        return -1;
    }
    given->is_there = 1;
    if ((validity != Py_None && PyObject_GetBuffer(validity, &given->validity, PyBUF_SIMPLE) < 0) ||
        PyObject_GetBuffer(offsets, &given->offsets, PyBUF_SIMPLE) < 0 ||
        (data != Py_None && PyObject_GetBuffer(data, &given->data, PyBUF_SIMPLE) < 0)) {
        return -1;
    }
    if (given->first < 0 || given->rows < 0 ||
        given->rows > PY_SSIZE_T_MAX / 16 || given->first > PY_SSIZE_T_MAX / 16 ||
        given->offsets.len < (given->first + given->rows + 1) * 4 ||
        (given->validity.obj != NULL &&
         given->validity.len < (given->first + given->rows + 7) / 8)) {
        PyErr_SetString(PyExc_ValueError, "a column is shorter than its rows");
        return -1;
    }
    return 0;
}

/* The bytes of one row: 0 and their place, 1 where there is none, -1 where they make no sense. */
static inline int
given_row(const Given *given, Py_ssize_t row, const uint8_t **place, Py_ssize_t *size)
{
    int32_t begin, end;
    const int32_t *offsets = given->offsets.buf;
    if (!given->is_there) {
        return 1;
    }
    if (row < 0 || row >= given->rows) {
        return -1;
    }
    row += given->first;
    if (given->validity.obj != NULL &&
        !(((const uint8_t *)given->validity.buf)[row >> 3] >> (row & 7) & 1)) {
        return 1;
    }
    begin = offsets[row];
    end = offsets[row + 1];
    if (begin < 0 || end < begin || end > given->data.len) {
        return -1;
    }
    *place = (const uint8_t *)given->data.buf + begin;
    *size = end - begin;
    return 0;
}

static inline int
bad_column(void)
{
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a row lies outside its column");
    }
    return -1;
}

#endif
