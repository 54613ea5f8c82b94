/* Version of the library and of its ABI. */
#ifndef UNCOPY_VERSION_H
#define UNCOPY_VERSION_H

#include "uncopy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define UNCOPY_VERSION_MAJOR 0
#define UNCOPY_VERSION_MINOR 1
#define UNCOPY_VERSION_PATCH 0

/* Version of the loaded library as "0.1.0". Static storage. */
UNCOPY_API const char *uncopy_version(void);

#ifdef __cplusplus
}
#endif

#endif
