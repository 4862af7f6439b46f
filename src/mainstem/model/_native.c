/* Records of v2 batches to columns and back, as mainstem/model/plain_columns.py does it.
 *
 * Python calls these functions through mainstem/model/columns.py and never relies on them being
 * there: a machine without a compiler runs the Python version, and the tests hold both to the same
 * results on the same bytes. Whatever the bytes, a function returns sound columns or raises
 * ValueError, which the caller turns into its own error; nothing is read or written outside the
 * buffers that were handed in or allocated here.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#define RECORD_BYTES_MIN 6 /* after the length: six fields of at least one byte each */
#define HEADERS_MAX 10000
#define COLUMN_BYTES_MAX INT32_MAX
#define MICROSECONDS 1000

static const char *const ENDS_IN_NUMBER = "a record ends inside a number";
static const char *const NUMBER_TOO_LONG = "a number has more than 64 bits";

/* Reading. */

typedef struct {
    const uint8_t *data;
    Py_ssize_t at;
    Py_ssize_t end;
    const char *error;
} Reader;

static int64_t
read_long_varint(Reader *reader)
{
    uint64_t value = 0;
    int shift = 0;
    for (;;) {
        uint8_t byte;
        if (reader->at >= reader->end) {
            reader->error = ENDS_IN_NUMBER;
            return 0;
        }
        byte = reader->data[reader->at++];
        if (shift == 63 && byte > 1) {
            reader->error = NUMBER_TOO_LONG;
            return 0;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
        }
        shift += 7;
    }
}

static inline int64_t
read_varint(Reader *reader)
{
    if (reader->at < reader->end && reader->data[reader->at] < 0x80) {
        uint8_t byte = reader->data[reader->at++];
        return (int64_t)(byte >> 1) ^ -(int64_t)(byte & 1);
    }
    return read_long_varint(reader);
}

/* A field of a record: its size (-1: absent) and its place; `end` bounds it. */
static inline int64_t
read_field(Reader *reader, Py_ssize_t end, const uint8_t **place)
{
    int64_t size = read_varint(reader);
    if (reader->error != NULL) {
        return -1;
    }
    if (size < 0) {
        if (size != -1) {
            reader->error = "a field of a negative size";
        }
        return -1;
    }
    if (reader->at > end || size > end - reader->at) {
        reader->error = "a field is longer than its record";
        return -1;
    }
    *place = reader->data + reader->at;
    reader->at += (Py_ssize_t)size;
    return size;
}

/* The length in front of a record; `*end` is where the record ends. */
static inline int
read_bounds(Reader *reader, Py_ssize_t *end)
{
    int64_t size = read_varint(reader);
    if (reader->error != NULL) {
        return -1;
    }
    if (size < RECORD_BYTES_MIN || size > reader->end - reader->at) {
        reader->error = "a record does not fit its batch";
        return -1;
    }
    *end = reader->at + (Py_ssize_t)size;
    return 0;
}

/* Growing columns. */

typedef struct {
    PyObject *bytes; /* a bytes object that nobody else has seen yet */
    Py_ssize_t used;
} Column;

static int
column_open(Column *column, Py_ssize_t size)
{
    column->used = 0;
    column->bytes = PyBytes_FromStringAndSize(NULL, size < 64 ? 64 : size);
    return column->bytes == NULL ? -1 : 0;
}

static int
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
static PyObject *
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

static int
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

static PyObject *
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

static int
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

static void
strings_drop(Strings *strings)
{
    Py_CLEAR(strings->validity.bits.bytes);
    Py_CLEAR(strings->offsets.bytes);
    Py_CLEAR(strings->data.bytes);
}

static PyObject *
strings_close(Strings *strings)
{
    return Py_BuildValue("(NNN)", validity_close(&strings->validity),
                         column_close(&strings->offsets), column_close(&strings->data));
}

/* Batches to columns. */

typedef struct {
    int64_t start;
    int64_t until;
    int with_headers;
    Py_ssize_t rows;
    Column offsets;
    Column timestamps;
    Column types;
    Strings keys;
    Strings values;
    Validity has_headers;
    Column header_offsets;
    Strings names;
    Strings header_values;
} Decoder;

static void
decoder_drop(Decoder *decoder)
{
    Py_CLEAR(decoder->offsets.bytes);
    Py_CLEAR(decoder->timestamps.bytes);
    Py_CLEAR(decoder->types.bytes);
    strings_drop(&decoder->keys);
    strings_drop(&decoder->values);
    Py_CLEAR(decoder->has_headers.bits.bytes);
    Py_CLEAR(decoder->header_offsets.bytes);
    strings_drop(&decoder->names);
    strings_drop(&decoder->header_values);
}

static int
decoder_open(Decoder *decoder, Py_ssize_t rows, Py_ssize_t size)
{
    int32_t zero = 0;
    if (column_open(&decoder->offsets, rows * 8) < 0 ||
        column_open(&decoder->timestamps, rows * 8) < 0 ||
        column_open(&decoder->types, rows * 4) < 0 ||
        strings_open(&decoder->keys, rows, size / 8) < 0 ||
        strings_open(&decoder->values, rows, size) < 0) {
        return -1;
    }
    if (!decoder->with_headers) {
        return 0;
    }
    if (validity_open(&decoder->has_headers, rows) < 0 ||
        column_open(&decoder->header_offsets, (rows + 1) * 4) < 0 ||
        strings_open(&decoder->names, rows, 0) < 0 ||
        strings_open(&decoder->header_values, rows, 0) < 0) {
        return -1;
    }
    return column_put(&decoder->header_offsets, &zero, 4);
}

/* Names are text by agreement only: what is not text is replaced, as Python's decoder does it. */
static int
put_name(Strings *names, const uint8_t *place, int64_t size)
{
    Py_ssize_t i;
    PyObject *text;
    const char *clean;
    Py_ssize_t clean_size;
    int done;
    for (i = 0; i < size && place[i] < 0x80; i++) {
    }
    if (i == size) {
        return strings_put(names, place, size);
    }
    text = PyUnicode_DecodeUTF8((const char *)place, (Py_ssize_t)size, "replace");
    if (text == NULL) {
        return -1;
    }
    clean = PyUnicode_AsUTF8AndSize(text, &clean_size);
    done = clean == NULL ? -1 : strings_put(names, clean, clean_size);
    Py_DECREF(text);
    return done;
}

/* The headers of one record; kept when the record is. -1: error in Python or in the reader. */
static int
decode_headers(Decoder *decoder, Reader *reader, Py_ssize_t end, int is_kept)
{
    int64_t count = read_varint(reader);
    int64_t i;
    int32_t total;
    if (reader->error != NULL) {
        return -1;
    }
    if (count < 0 || count > HEADERS_MAX) {
        reader->error = "an impossible number of headers";
        return -1;
    }
    for (i = 0; i < count; i++) {
        const uint8_t *name = NULL, *value = NULL;
        int64_t name_size = read_field(reader, end, &name);
        int64_t value_size;
        if (reader->error == NULL && name_size < 0) {
            reader->error = "a header without a name";
        }
        if (reader->error != NULL) {
            return -1;
        }
        value_size = read_field(reader, end, &value);
        if (reader->error != NULL) {
            return -1;
        }
        if (is_kept && decoder->with_headers &&
            (put_name(&decoder->names, name, name_size) < 0 ||
             strings_put(&decoder->header_values, value, value_size) < 0)) {
            return -1;
        }
    }
    if (!is_kept || !decoder->with_headers) {
        return 0;
    }
    total = (int32_t)decoder->names.validity.count;
    if (column_put(&decoder->header_offsets, &total, 4) < 0) {
        return -1;
    }
    return validity_put(&decoder->has_headers, count > 0);
}

/* Microseconds of a time in milliseconds; what does not fit is the farthest time that does. */
static inline int64_t
microseconds(int64_t base, int64_t delta)
{
    __int128 time = ((__int128)base + delta) * MICROSECONDS;
    if (time > INT64_MAX) {
        return INT64_MAX;
    }
    return time < INT64_MIN ? INT64_MIN : (int64_t)time;
}

typedef struct {
    int64_t count;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t offset_span; /* offsets that the batch covers */
    int64_t fixed_timestamp;
    int32_t is_fixed;
} BatchFacts;

static int
decode_record(Decoder *decoder, Reader *reader, const BatchFacts *facts, int64_t *last_delta)
{
    Py_ssize_t end;
    int64_t timestamp_delta, offset_delta, key_size, value_size, offset, time;
    const uint8_t *key = NULL, *value = NULL;
    int is_kept;
    if (read_bounds(reader, &end) < 0) {
        return -1;
    }
    reader->at++; /* attributes: none are defined */
    timestamp_delta = read_varint(reader);
    offset_delta = reader->error == NULL ? read_varint(reader) : 0;
    if (reader->error != NULL) {
        return -1;
    }
    if (offset_delta <= *last_delta || offset_delta >= facts->offset_span) {
        reader->error = "a record at an impossible offset";
        return -1;
    }
    *last_delta = offset_delta;
    key_size = read_field(reader, end, &key);
    value_size = reader->error == NULL ? read_field(reader, end, &value) : -1;
    if (reader->error != NULL) {
        return -1;
    }
    offset = facts->base_offset + offset_delta;
    is_kept = offset >= decoder->start && offset < decoder->until;
    if (decode_headers(decoder, reader, end, is_kept) < 0) {
        return -1;
    }
    if (reader->at != end) {
        reader->error = "a record is not as long as its fields";
        return -1;
    }
    if (!is_kept) {
        return 0;
    }
    decoder->rows++;
    time = facts->is_fixed ? microseconds(facts->fixed_timestamp, 0)
                           : microseconds(facts->base_timestamp, timestamp_delta);
    if (column_put(&decoder->offsets, &offset, 8) < 0 ||
        column_put(&decoder->timestamps, &time, 8) < 0 ||
        column_put(&decoder->types, &facts->is_fixed, 4) < 0 ||
        strings_put(&decoder->keys, key, key_size) < 0 ||
        strings_put(&decoder->values, value, value_size) < 0) {
        return -1;
    }
    return 0;
}

static int
decode_batch(Decoder *decoder, PyObject *batch)
{
    Py_buffer body;
    BatchFacts facts;
    Reader reader;
    PyObject *fixed;
    long long count, base_offset, base_timestamp, until_offset;
    int64_t i, last_delta = -1;
    int result = -1;
    if (!PyArg_ParseTuple(batch, "y*LLLOL;a batch", &body, &count, &base_offset, &base_timestamp,
                          &fixed, &until_offset)) {
        return -1;
    }
    facts.count = count;
    facts.base_offset = base_offset;
    facts.base_timestamp = base_timestamp;
    facts.is_fixed = fixed != Py_None;
    facts.fixed_timestamp = facts.is_fixed ? PyLong_AsLongLong(fixed) : 0;
    if (PyErr_Occurred()) {
        goto done;
    }
    if (base_offset < 0 || until_offset < base_offset) {
        PyErr_SetString(PyExc_ValueError, "a batch at an impossible offset");
        goto done;
    }
    facts.offset_span = until_offset - base_offset;
    reader.data = body.buf;
    reader.at = 0;
    reader.end = body.len;
    reader.error = NULL;
    for (i = 0; i < facts.count; i++) {
        if (decode_record(decoder, &reader, &facts, &last_delta) < 0) {
            break;
        }
    }
    if (reader.error == NULL && i == facts.count && reader.at != reader.end) {
        reader.error = "bytes after the last record";
    }
    if (reader.error != NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, reader.error);
    }
    result = PyErr_Occurred() ? -1 : 0;
done:
    PyBuffer_Release(&body);
    return result;
}

/* How much room the columns of some batches need at most. */
static int
measure(PyObject *batches, Py_ssize_t *rows, Py_ssize_t *size)
{
    Py_ssize_t i;
    for (i = 0; i < PySequence_Fast_GET_SIZE(batches); i++) {
        PyObject *batch = PySequence_Fast_GET_ITEM(batches, i);
        PyObject *body;
        Py_ssize_t length, count;
        if (!PyTuple_Check(batch) || PyTuple_GET_SIZE(batch) != 6) {
            PyErr_SetString(PyExc_TypeError, "a batch is a tuple of six");
            return -1;
        }
        body = PyTuple_GET_ITEM(batch, 0);
        length = PyObject_Size(body);
        count = PyNumber_AsSsize_t(PyTuple_GET_ITEM(batch, 1), PyExc_OverflowError);
        if (PyErr_Occurred()) {
            return -1;
        }
        if (count < 0 || count > length) {
            PyErr_SetString(PyExc_ValueError, "more records than bytes");
            return -1;
        }
        *rows += count;
        *size += length;
    }
    return 0;
}

PyDoc_STRVAR(decode_doc,
"decode(batches, start, until, with_headers, /)\n--\n\n"
"The columns of the records between two offsets.");

static PyObject *
decode(PyObject *module, PyObject *arguments)
{
    Decoder decoder;
    PyObject *given, *batches, *headers, *result = NULL;
    long long start, until;
    Py_ssize_t rows = 0, size = 0, i;
    memset(&decoder, 0, sizeof decoder);
    if (!PyArg_ParseTuple(arguments, "OLLp", &given, &start, &until, &decoder.with_headers)) {
        return NULL;
    }
    batches = PySequence_Fast(given, "batches are a sequence");
    if (batches == NULL) {
        return NULL;
    }
    decoder.start = start;
    decoder.until = until;
    if (measure(batches, &rows, &size) < 0 || decoder_open(&decoder, rows, size) < 0) {
        goto done;
    }
    for (i = 0; i < PySequence_Fast_GET_SIZE(batches); i++) {
        if (decode_batch(&decoder, PySequence_Fast_GET_ITEM(batches, i)) < 0) {
            goto done;
        }
    }
    if (decoder.with_headers) {
        headers = Py_BuildValue("(NNNN)", validity_close(&decoder.has_headers),
                                column_close(&decoder.header_offsets),
                                strings_close(&decoder.names),
                                strings_close(&decoder.header_values));
    } else {
        headers = Py_None;
        Py_INCREF(headers);
    }
    result = Py_BuildValue("(nNNNNNN)", decoder.rows, column_close(&decoder.offsets),
                           column_close(&decoder.timestamps), column_close(&decoder.types),
                           strings_close(&decoder.keys), strings_close(&decoder.values), headers);
done:
    decoder_drop(&decoder);
    Py_DECREF(batches);
    return result;
}

/* Records of one batch as tuples, for compaction. */

static PyObject *
raw_record(PyTypeObject *type, Reader *reader, int64_t base_offset)
{
    Py_ssize_t start, rest, end, place;
    int64_t timestamp_delta, offset_delta, key_size, value_size, offset;
    PyObject *record, *key;
    if (read_bounds(reader, &end) < 0) {
        return NULL;
    }
    start = reader->at;
    reader->at++;
    timestamp_delta = read_varint(reader);
    rest = reader->at;
    offset_delta = reader->error == NULL ? read_varint(reader) : 0;
    key_size = reader->error == NULL ? read_varint(reader) : 0;
    if (reader->error != NULL) {
        return NULL;
    }
    place = reader->at;
    if (place >= end || key_size >= end - place) {
        reader->error = "a key is longer than its record";
        return NULL;
    }
    reader->at = place + (key_size > 0 ? (Py_ssize_t)key_size : 0);
    value_size = read_varint(reader);
    if (reader->error != NULL) {
        return NULL;
    }
    if (__builtin_add_overflow(base_offset, offset_delta, &offset)) {
        reader->error = "a record at an impossible offset";
        return NULL;
    }
    if (key_size >= 0) {
        key = PyBytes_FromStringAndSize((const char *)reader->data + place, (Py_ssize_t)key_size);
    } else {
        key = Py_None;
        Py_INCREF(key);
    }
    record = key == NULL ? NULL : type->tp_alloc(type, 7);
    if (record == NULL) {
        Py_XDECREF(key);
        return NULL;
    }
    PyTuple_SET_ITEM(record, 0, PyLong_FromLongLong(offset));
    PyTuple_SET_ITEM(record, 1, PyLong_FromLongLong(timestamp_delta));
    PyTuple_SET_ITEM(record, 2, key);
    PyTuple_SET_ITEM(record, 3, PyBool_FromLong(value_size < 0));
    PyTuple_SET_ITEM(record, 4, PyLong_FromSsize_t(start));
    PyTuple_SET_ITEM(record, 5, PyLong_FromSsize_t(rest));
    PyTuple_SET_ITEM(record, 6, PyLong_FromSsize_t(end));
    if (PyErr_Occurred()) {
        Py_DECREF(record);
        return NULL;
    }
    reader->at = end;
    return record;
}

PyDoc_STRVAR(raw_records_doc,
"raw_records(kind, body, record_count, base_offset, /)\n--\n\n"
"The records of a body as tuples of a kind that has seven fields.");

static PyObject *
raw_records(PyObject *module, PyObject *arguments)
{
    PyTypeObject *type;
    Py_buffer body;
    Reader reader;
    long long count, base_offset, i;
    PyObject *records;
    if (!PyArg_ParseTuple(arguments, "O!y*LL", &PyType_Type, &type, &body, &count, &base_offset)) {
        return NULL;
    }
    records = NULL;
    if (!PyType_IsSubtype(type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "records are tuples");
    } else {
        records = PyList_New(0);
    }
    reader.data = body.buf;
    reader.at = 0;
    reader.end = body.len;
    reader.error = NULL;
    for (i = 0; records != NULL && i < count; i++) {
        PyObject *record = raw_record(type, &reader, base_offset);
        if (record == NULL || PyList_Append(records, record) < 0) {
            Py_XDECREF(record);
            Py_CLEAR(records);
            break;
        }
        Py_DECREF(record);
    }
    if (reader.error != NULL && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, reader.error);
    }
    PyBuffer_Release(&body);
    return records;
}

/* Columns to records. */

typedef struct {
    Py_buffer validity;
    Py_buffer offsets;
    Py_buffer data;
    Py_ssize_t first; /* where the column begins in its buffers */
    Py_ssize_t rows;
    int is_there;
} Given;

static void
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
static int
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

static int
bad_column(void)
{
    if (!PyErr_Occurred()) {
        PyErr_SetString(PyExc_ValueError, "a row lies outside its column");
    }
    return -1;
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

PyDoc_STRVAR(encode_doc,
"encode(rows, keys, values, timestamps, headers, batch_bytes, /)\n--\n\n"
"The bodies of batches that hold some rows of the columns, in their order.");

static PyObject *
encode(PyObject *module, PyObject *arguments)
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

/* Where keys go. */

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

PyDoc_STRVAR(partitions_doc,
"partitions(keys, row_count, partition_count, /)\n--\n\n"
"The partition of every key as 32-bit numbers; -1 where there is no key.");

static PyObject *
partitions(PyObject *module, PyObject *arguments)
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

static PyMethodDef functions[] = {
    {"decode", decode, METH_VARARGS, decode_doc},
    {"encode", encode, METH_VARARGS, encode_doc},
    {"partitions", partitions, METH_VARARGS, partitions_doc},
    {"raw_records", raw_records, METH_VARARGS, raw_records_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "mainstem.model._native",
    "Records to columns and back; use mainstem.model.columns.", -1, functions,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModule_Create(&definition);
}
