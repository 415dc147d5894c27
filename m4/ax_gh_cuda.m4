# ax_gh_cuda.m4 - finds nvcc and cuda.h.
# SPDX-License-Identifier: Apache-2.0
#
# --with-cuda=DIR  that toolkit, or an error
# --with-cuda      nvcc on PATH or in /usr/local/cuda, or an error
# (nothing)        the same, or the PTX that comes with the sources
# --without-cuda   the PTX that comes with the sources
AC_DEFUN([AX_GH_CUDA], [
  AC_ARG_WITH([cuda],
    [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
      [compile kernels with the CUDA toolkit in DIR @<:@if found@:>@])],
    [], [with_cuda=auto])

  NVCC=
  CUDA_CPPFLAGS=
  AS_CASE(["$with_cuda"],
    [no], [],
    [yes|auto],
      [AC_PATH_PROG([NVCC], [nvcc], [],
                    [$PATH$PATH_SEPARATOR/usr/local/cuda/bin])],
    [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])

  AS_IF([test "x$NVCC" = x], [
    AS_CASE(["$with_cuda"],
      [no|auto], [],
      [yes], [AC_MSG_ERROR([--with-cuda: no nvcc on PATH or in /usr/local/cuda])],
      [AC_MSG_ERROR([--with-cuda: no nvcc in $with_cuda/bin])])
    gh_kernels="from the PTX in the source tree"
  ], [
    gh_kernels="by $NVCC"
    gh_cuda_root=`AS_DIRNAME(["$NVCC"])`/..
    gh_save="$CPPFLAGS"
    CPPFLAGS="$CPPFLAGS -I$gh_cuda_root/include"
    AC_CHECK_HEADER([cuda.h], [CUDA_CPPFLAGS="-I$gh_cuda_root/include"])
    CPPFLAGS="$gh_save"
  ])

  AC_SUBST([NVCC])
  AC_SUBST([CUDA_CPPFLAGS])
  AM_CONDITIONAL([HAVE_NVCC], [test "x$NVCC" != x])
  AM_CONDITIONAL([HAVE_CUDA_H], [test "x$CUDA_CPPFLAGS" != x])
])
