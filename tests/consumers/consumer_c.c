/* The same call through the C interface, in C89. */
#include <stdio.h>

#include "dodona/c.h"

int main(void) {
  float x[2] = {3, 4}, weight[2] = {1, 1}, y[2] = {0, 0};
  dodona_tensor tensors[3] = {{"input", 0, DODONA_F32, 2, {1, 2}, 0, {0}},
                              {"weight", 0, DODONA_F32, 1, {2}, 0, {0}},
                              {"output", 0, DODONA_F32, 2, {1, 2}, 0, {0}}};
  tensors[0].data = x;
  tensors[1].data = weight;
  tensors[2].data = y;
  if (dodona_run("rmsnorm", tensors, 3, NULL, 0, NULL, NULL) != DODONA_OK) {
    puts(dodona_last_error());
    return 1;
  }
  if (y[0] < 0.8485f || y[0] > 0.8486f) return 2;
  return dodona_run("rmsnrom", tensors, 3, NULL, 0, NULL, NULL) == DODONA_UNKNOWN_OP ? 0 : 3;
}
