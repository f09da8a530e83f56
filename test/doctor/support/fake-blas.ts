import { execFileSync, spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { needing } from '../../needs.ts'

/** A library with the names of the wheel, in loops. FAULT makes it crash or its products wrong. */
const source = `
#include <signal.h>
#include <stdlib.h>
#include <string.h>
static int fault(const char *name) {
  const char *given = getenv("FAULT");
  return given && !strcmp(given, name);
}
void scipy_cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                       int lda, const float *b, int ldb, float beta, float *c, int ldc) {
  if (fault("crash")) raise(SIGILL);
  if (fault("transposition")) tb = 111;
  for (int i = 0; i < m; i++) for (int j = 0; j < n; j++) {
    float sum = 0, *to = c + i * ldc + j;
    for (int l = 0; l < k; l++)
      sum += (ta == 112 ? a[l * lda + i] : a[i * lda + l]) * (tb == 112 ? b[j * ldb + l] : b[l * ldb + j]);
    *to = alpha * sum + (beta == 0 && !fault("beta") ? 0 : beta * *to);
  }
}
const char *scipy_openblas_get_corename(void) {
  const char *name = getenv("OPENBLAS_CORETYPE");
  return name ? name : "Played";
}
`

/** `describe` and `it` for tests of the fake BLAS, which needs a C compiler. */
export const withCompiler = needing(spawnSync('cc', ['--version']).status === 0, 'cc')

/** For the tests of a file, a shared library that multiplies right. */
export class FakeBlas {
  path = ''

  constructor() {
    let folder: string
    beforeAll(() => {
      folder = mkdtempSync(join(tmpdir(), 'tsrun-blas-'))
      this.path = join(folder, 'libplayed.so')
      writeFileSync(join(folder, 'blas.c'), source)
      execFileSync('cc', ['-shared', '-fPIC', '-o', this.path, join(folder, 'blas.c')])
    })
    afterAll(() => {
      rmSync(folder, { recursive: true })
    })
  }
}
