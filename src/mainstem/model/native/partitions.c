/* Where keys go. */

#include "given.h"
#include "native.h"

static uint32_t
murmur2(const uint8_t *data, Py_ssize_t size)
{
    const uint32_t multiplier = 0x5bd1e995u;
    uint32_t state = 0x9747b28cu ^ (uint32_t)size;
    uint32_t rest = 0;
    Py_ssize_t whole = size & ~(Py_ssize_t)3, i;
    for (i = 0; i < whole; i += 4) {
        uint32_t word = (uint32_t)data[i] | (uint32_t)data[i + 1] << 8 |
                        (uint32_t)data[i + 2] << 16 | (uint32_t)data[i + 3] << 24;
        word *= multiplier;
        word ^= word >> 24;
        word *= multiplier;
        state = state * multiplier ^ word;
    }
    if (size > whole) {
        for (i = size - 1; i >= whole; i--) {
            rest = rest << 8 | data[i];
        }
        state ^= rest;
        state *= multiplier;
    }
    state ^= state >> 13;
    state *= multiplier;
    return state ^ state >> 15;
}

const char native_partitions_doc[] =
"partitions(keys, row_count, partition_count, /)\n--\n\n"
"The partition of every key as 32-bit numbers; -1 where there is no key.";

PyObject *
native_partitions(PyObject *module, PyObject *arguments)
{
    Given keys;
    PyObject *column, *result = NULL;
    Py_ssize_t rows, row;
    long count;
    int32_t *out;
    if (!PyArg_ParseTuple(arguments, "Onl", &column, &rows, &count)) {
        return NULL;
    }
    if (rows < 0 || count < 1 || count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "an impossible number of rows or partitions");
        return NULL;
    }
    if (given_open(&keys, column) < 0) {
        goto done;
    }
    result = PyBytes_FromStringAndSize(NULL, rows * 4);
    if (result == NULL) {
        goto done;
    }
    out = (int32_t *)PyBytes_AS_STRING(result);
    for (row = 0; row < rows; row++) {
        const uint8_t *place = NULL;
        Py_ssize_t size = 0;
        int is_absent = given_row(&keys, row, &place, &size);
        if (is_absent < 0) {
            bad_column();
            Py_CLEAR(result);
            goto done;
        }
        out[row] = is_absent ? -1
                             : (int32_t)((murmur2(place, size) & 0x7fffffff) % (uint32_t)count);
    }
done:
    given_drop(&keys);
    return result;
}
