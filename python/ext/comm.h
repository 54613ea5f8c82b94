/* Communicators, their jobs and windows as Python objects. */
#ifndef UNCOPY_EXT_COMM_H
#define UNCOPY_EXT_COMM_H

#include "exchange.h"

typedef struct communicator_object {
    PyObject_HEAD PyObject *weak_references;
    exchange_station_t *station; /* NULL once closed */
} communicator_object_t;

typedef struct job_object {
    PyObject_HEAD exchange_job_t *job;
} job_object_t;

PyTypeObject *communicator_type_create(void);
PyTypeObject *job_type_create(void);
PyTypeObject *window_type_create(void);

/* Takes over the reference to job. */
PyObject *job_object_create(exchange_job_t *job);
/* A window of bytes, made together with the other ranks. */
PyObject *window_object_create(const communicator_object_t *communicator, int64_t bytes);

#endif
