/* Reading records of v2 batches: numbers and fields, each within its bounds. */

#ifndef MAINSTEM_READER_H
#define MAINSTEM_READER_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdint.h>
#include <string.h>

#define RECORD_BYTES_MIN 6 /* after the length: six fields of at least one byte each */
#define HEADERS_MAX 10000

static const char *const ENDS_IN_NUMBER = "a record ends inside a number";
static const char *const NUMBER_TOO_LONG = "a number has more than 64 bits";

typedef struct {
    const uint8_t *data;
    Py_ssize_t at;
    Py_ssize_t end;
    const char *error;
} Reader;

static inline int64_t
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

#endif
