/* Columns to the bodies of batches. */

#include "given.h"
#include "growing.h"
#include "native.h"

static inline Py_ssize_t
varint_size(int64_t value)
{
    uint64_t number = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    Py_ssize_t size = 1;
    while (number >= 0x80) {
        number >>= 7;
        size++;
    }
    return size;
}

static inline uint8_t *
write_varint(uint8_t *out, int64_t value)
{
    uint64_t number = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    while (number >= 0x80) {
        *out++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *out++ = (uint8_t)number;
    return out;
}

static inline uint8_t *
write_field(uint8_t *out, int is_absent, const uint8_t *place, Py_ssize_t size)
{
    if (is_absent) {
        *out++ = 1; /* -1 in zigzag */
        return out;
    }
    out = write_varint(out, size);
    if (size) {
        memcpy(out, place, (size_t)size);
    }
    return out + size;
}

static inline Py_ssize_t
field_size(int is_absent, Py_ssize_t size)
{
    return is_absent ? 1 : varint_size(size) + size;
}

typedef struct {
    Given keys;
    Given values;
    Given lists; /* of headers: validity and offsets only */
    Given names;
    Given header_values;
    Py_buffer rows;
    Py_buffer timestamps;
    Py_ssize_t batch_bytes;
    PyObject *batches;
    Column body;
    int64_t count;
    int64_t first_timestamp;
    int64_t max_timestamp;
} Encoder;

static int
encoder_flush(Encoder *encoder)
{
    PyObject *batch;
    int done;
    if (encoder->count == 0) {
        return 0;
    }
    batch = Py_BuildValue("(NLLL)", column_close(&encoder->body), (long long)encoder->count,
                          (long long)encoder->first_timestamp, (long long)encoder->max_timestamp);
    encoder->count = 0;
    if (batch == NULL) {
        return -1;
    }
    done = PyList_Append(encoder->batches, batch);
    Py_DECREF(batch);
    return done < 0 ? -1 : column_open(&encoder->body, encoder->batch_bytes);
}

/* Which headers a row has, and how many bytes they take. */
static int
headers_of(const Encoder *encoder, Py_ssize_t row, int32_t *begin, int32_t *end, Py_ssize_t *size)
{
    const Given *lists = &encoder->lists;
    const int32_t *offsets = lists->offsets.buf;
    int32_t i;
    *begin = *end = 0;
    if (lists->is_there) {
        Py_ssize_t place = row + lists->first;
        if (row >= lists->rows) {
            return -1;
        }
        if (lists->validity.obj == NULL ||
            ((const uint8_t *)lists->validity.buf)[place >> 3] >> (place & 7) & 1) {
            *begin = offsets[place];
            *end = offsets[place + 1];
        }
    }
    if (*begin < 0 || *end < *begin) {
        return -1;
    }
    *size = varint_size(*end - *begin);
    for (i = *begin; i < *end; i++) {
        const uint8_t *place;
        Py_ssize_t name = 0, value = 0;
        int is_absent;
        if (given_row(&encoder->names, i, &place, &name) != 0) {
            return -1; /* a header has a name */
        }
        is_absent = given_row(&encoder->header_values, i, &place, &value);
        if (is_absent < 0) {
            return -1;
        }
        *size += field_size(0, name) + field_size(is_absent, value);
    }
    return 0;
}

static int
encode_row(Encoder *encoder, Py_ssize_t row)
{
    const uint8_t *key = NULL, *value = NULL;
    Py_ssize_t key_size = 0, value_size = 0, headers_size, size;
    int no_key, no_value;
    int32_t begin, end, i;
    int64_t timestamp, delta;
    uint8_t *out;
    if (row < 0 || row >= encoder->timestamps.len / 8) {
        return bad_column();
    }
    no_key = given_row(&encoder->keys, row, &key, &key_size);
    no_value = given_row(&encoder->values, row, &value, &value_size);
    if (no_key < 0 || no_value < 0 || headers_of(encoder, row, &begin, &end, &headers_size) < 0) {
        return bad_column();
    }
    timestamp = ((const int64_t *)encoder->timestamps.buf)[row];
    if (encoder->count == 0) {
        encoder->first_timestamp = encoder->max_timestamp = timestamp;
    }
    /* Times of a batch lie so close together that only nonsense overflows; it wraps round twice. */
    delta = (int64_t)((uint64_t)timestamp - (uint64_t)encoder->first_timestamp);
    size = 1 + varint_size(delta) + varint_size(encoder->count) + field_size(no_key, key_size) +
           field_size(no_value, value_size) + headers_size;
    if (encoder->count && encoder->body.used + size + varint_size(size) > encoder->batch_bytes) {
        if (encoder_flush(encoder) < 0) {
            return -1;
        }
        return encode_row(encoder, row);
    }
    if (column_reserve(&encoder->body, size + varint_size(size)) < 0) {
        return -1;
    }
    if (timestamp > encoder->max_timestamp) {
        encoder->max_timestamp = timestamp;
    }
    out = (uint8_t *)column_end(&encoder->body);
    out = write_varint(out, size);
    *out++ = 0;
    out = write_varint(out, delta);
    out = write_varint(out, encoder->count);
    out = write_field(out, no_key, key, key_size);
    out = write_field(out, no_value, value, value_size);
    out = write_varint(out, end - begin);
    for (i = begin; i < end; i++) {
        const uint8_t *place = NULL;
        Py_ssize_t length = 0;
        int is_absent = given_row(&encoder->names, i, &place, &length);
        out = write_field(out, is_absent, place, length);
        length = 0;
        is_absent = given_row(&encoder->header_values, i, &place, &length);
        out = write_field(out, is_absent, place, length);
    }
    encoder->body.used += size + varint_size(size);
    encoder->count++;
    return 0;
}

const char native_encode_doc[] =
"encode(rows, keys, values, timestamps, headers, batch_bytes, /)\n--\n\n"
"The bodies of batches that hold some rows of the columns, in their order.";

PyObject *
native_encode(PyObject *module, PyObject *arguments)
{
    Encoder encoder;
    PyObject *keys, *values, *headers, *lists = Py_None, *names = Py_None, *contents = Py_None;
    PyObject *result = NULL;
    Py_ssize_t i;
    memset(&encoder, 0, sizeof encoder);
    if (!PyArg_ParseTuple(arguments, "y*OOy*On", &encoder.rows, &keys, &values, &encoder.timestamps,
                          &headers, &encoder.batch_bytes)) {
        return NULL;
    }
    if (headers != Py_None &&
        !PyArg_ParseTuple(headers, "OOO;headers", &lists, &names, &contents)) {
        goto done;
    }
    if (given_open(&encoder.keys, keys) < 0 || given_open(&encoder.values, values) < 0 ||
        given_open(&encoder.lists, lists) < 0 || given_open(&encoder.names, names) < 0 ||
        given_open(&encoder.header_values, contents) < 0) {
        goto done;
    }
    encoder.batches = PyList_New(0);
    if (encoder.batches == NULL || column_open(&encoder.body, encoder.batch_bytes) < 0) {
        goto done;
    }
    for (i = 0; i < encoder.rows.len / 8; i++) {
        if (encode_row(&encoder, (Py_ssize_t)((const int64_t *)encoder.rows.buf)[i]) < 0) {
            goto done;
        }
    }
    if (encoder_flush(&encoder) == 0) {
        result = encoder.batches;
        Py_INCREF(result);
    }
done:
    Py_XDECREF(encoder.batches);
    Py_CLEAR(encoder.body.bytes);
    given_drop(&encoder.keys);
    given_drop(&encoder.values);
    given_drop(&encoder.lists);
    given_drop(&encoder.names);
    given_drop(&encoder.header_values);
    PyBuffer_Release(&encoder.rows);
    PyBuffer_Release(&encoder.timestamps);
    return result;
}
