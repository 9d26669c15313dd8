/* Runs a compiled network without TVM's runtime: run_network LIBRARY PLAN DATA OUT.
 *
 * PLAN: the number of tensors and of calls; for each tensor its number of axes and its sizes; for each call the
 * kernel's symbol, the number of its arguments and their tensors; last the tensor that is the answer. DATA holds the
 * first content of every tensor, all of float32, in order. */
#include <dlfcn.h>
#include <dlpack/dlpack.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tvm/ffi/c_api.h>

#define MOST_AXES 8
#define MOST_ARGUMENTS 32

typedef int (*Kernel)(void*, const TVMFFIAny*, int32_t, TVMFFIAny*);

void TVMFFIErrorSetRaisedFromCStrParts(const char* kind, const char** parts, int32_t count) {
  fprintf(stderr, "%s: ", kind);
  for (int32_t i = 0; i < count; ++i) fputs(parts[i], stderr);
  fputc('\n', stderr);
}

static void* allocate(int device_type, int device_id, uint64_t size, int code, int bits) {
  return aligned_alloc(64, (size + 63) / 64 * 64);
}

static int release(int device_type, int device_id, void* pointer) {
  free(pointer);
  return 0;
}

static void fail(const char* what) {
  fprintf(stderr, "run_network: %s\n", what);
  exit(1);
}

static void set(void* library, const char* name, void* function) {
  void** place = dlsym(library, name);
  if (place) *place = function; /* only kernels that need it bring it */
}

int main(int argc, char** argv) {
  if (argc != 5) fail("needs LIBRARY PLAN DATA OUT");
  void* library = dlopen(argv[1], RTLD_NOW);
  if (!library) fail(dlerror());
  set(library, "__TVMBackendAllocWorkspace", allocate);
  set(library, "__TVMBackendFreeWorkspace", release);
  FILE* plan = fopen(argv[2], "r");
  FILE* data = fopen(argv[3], "rb");
  int num_tensors, num_calls;
  if (!plan || !data || fscanf(plan, "%d %d", &num_tensors, &num_calls) != 2) fail("cannot read the plan");
  DLTensor* tensors = calloc(num_tensors, sizeof(DLTensor));
  size_t* sizes = calloc(num_tensors, sizeof(size_t));
  for (int i = 0; i < num_tensors; ++i) {
    int num_axes;
    if (fscanf(plan, "%d", &num_axes) != 1 || num_axes > MOST_AXES) fail("bad tensor");
    int64_t* shape = calloc(MOST_AXES, sizeof(int64_t));
    int64_t* strides = calloc(MOST_AXES, sizeof(int64_t));
    sizes[i] = 1;
    for (int axis = 0; axis < num_axes; ++axis) {
      long long size;
      if (fscanf(plan, "%lld", &size) != 1) fail("bad size");
      shape[axis] = size;
      sizes[i] *= size;
    }
    for (int axis = num_axes - 1, stride = 1; axis >= 0; stride *= shape[axis--]) strides[axis] = stride;
    void* content = aligned_alloc(64, (sizes[i] * sizeof(float) + 63) / 64 * 64);
    if (fread(content, sizeof(float), sizes[i], data) != sizes[i]) fail("too little data");
    tensors[i] = (DLTensor){.data = content, .device = {kDLCPU, 0}, .ndim = num_axes, .dtype = {kDLFloat, 32, 1},
                            .shape = shape, .strides = strides};
  }
  for (int call = 0; call < num_calls; ++call) {
    char symbol[256];
    int count;
    if (fscanf(plan, "%255s %d", symbol, &count) != 2 || count > MOST_ARGUMENTS) fail("bad call");
    Kernel kernel = (Kernel)dlsym(library, symbol);
    if (!kernel) fail(dlerror());
    TVMFFIAny arguments[MOST_ARGUMENTS], result;
    memset(arguments, 0, sizeof(arguments));
    memset(&result, 0, sizeof(result));
    for (int i = 0; i < count; ++i) {
      int tensor;
      if (fscanf(plan, "%d", &tensor) != 1 || tensor < 0 || tensor >= num_tensors) fail("bad argument");
      arguments[i].type_index = kTVMFFIDLTensorPtr;
      arguments[i].v_ptr = &tensors[tensor];
    }
    if (kernel(NULL, arguments, count, &result)) fail(symbol);
  }
  int answer;
  if (fscanf(plan, "%d", &answer) != 1) fail("no answer");
  FILE* out = fopen(argv[4], "wb");
  if (!out || fwrite(tensors[answer].data, sizeof(float), sizes[answer], out) != sizes[answer] || fclose(out))
    fail("cannot write the answer");
  return 0;
}
