# ax_gh_flags.m4 - warnings, hidden symbols, hardening, -Werror and sanitizers.
# SPDX-License-Identifier: Apache-2.0
#
# Sets GH_CFLAGS and GH_LDFLAGS, which Makefile.am puts into AM_CFLAGS and
# AM_LDFLAGS, so that CFLAGS stays the user's.
AC_DEFUN([AX_GH_FLAGS], [
  GH_CFLAGS="-std=gnu11 -fvisibility=hidden"
  GH_LDFLAGS=

  m4_foreach_w([gh_flag], [-Wall -Wextra -Wmissing-prototypes
                           -Wstrict-prototypes -Wpointer-arith -Wvla], [
    AC_CACHE_CHECK([whether $CC takes gh_flag],
                   AS_TR_SH([gh_cv_cc_]gh_flag), [
      gh_save="$CFLAGS"
      CFLAGS="$CFLAGS -Werror gh_flag"
      AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
                        [AS_TR_SH([gh_cv_cc_]gh_flag)=yes],
                        [AS_TR_SH([gh_cv_cc_]gh_flag)=no])
      CFLAGS="$gh_save"])
    AS_IF([test "x$AS_TR_SH([gh_cv_cc_]gh_flag)" = xyes],
          [GH_CFLAGS="$GH_CFLAGS gh_flag"])
  ])

  # Against overruns of the stack, and writes to tables of addresses.
  m4_foreach_w([gh_flag], [-fstack-protector-strong], [
    AC_CACHE_CHECK([whether $CC takes gh_flag],
                   AS_TR_SH([gh_cv_cc_]gh_flag), [
      gh_save="$CFLAGS"
      CFLAGS="$CFLAGS -Werror gh_flag"
      AC_LINK_IFELSE([AC_LANG_PROGRAM()],
                     [AS_TR_SH([gh_cv_cc_]gh_flag)=yes],
                     [AS_TR_SH([gh_cv_cc_]gh_flag)=no])
      CFLAGS="$gh_save"])
    AS_IF([test "x$AS_TR_SH([gh_cv_cc_]gh_flag)" = xyes],
          [GH_CFLAGS="$GH_CFLAGS gh_flag"])
  ])
  m4_foreach_w([gh_flag], [-Wl,-z,relro -Wl,-z,now], [
    AC_CACHE_CHECK([whether $CC links with gh_flag],
                   AS_TR_SH([gh_cv_ld_]gh_flag), [
      gh_save="$LDFLAGS"
      LDFLAGS="$LDFLAGS gh_flag"
      AC_LINK_IFELSE([AC_LANG_PROGRAM()],
                     [AS_TR_SH([gh_cv_ld_]gh_flag)=yes],
                     [AS_TR_SH([gh_cv_ld_]gh_flag)=no])
      LDFLAGS="$gh_save"])
    AS_IF([test "x$AS_TR_SH([gh_cv_ld_]gh_flag)" = xyes],
          [GH_LDFLAGS="$GH_LDFLAGS gh_flag"])
  ])

  AC_ARG_ENABLE([werror],
    [AS_HELP_STRING([--enable-werror], [treat warnings as errors])],
    [], [enable_werror=no])
  AS_IF([test "x$enable_werror" = xyes], [GH_CFLAGS="$GH_CFLAGS -Werror"])
  # Some distributions fortify by default, and then warn of more.
  AS_CASE(["$enable_werror:$enable_sanitizer:$CFLAGS"],
    [yes:no:*-O@<:@123s@:>@* | yes::*-O@<:@123s@:>@*],
    [GH_CFLAGS="$GH_CFLAGS -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2"])

  AC_ARG_ENABLE([sanitizer],
    [AS_HELP_STRING([--enable-sanitizer=LIST],
      [build with -fsanitize=LIST, such as address,undefined])],
    [], [enable_sanitizer=no])
  AS_CASE(["$enable_sanitizer"],
    [yes], [enable_sanitizer=address,undefined])
  AS_IF([test "x$enable_sanitizer" != xno], [
    gh_sanitize="-fsanitize=$enable_sanitizer -fno-sanitize-recover=all"
    gh_sanitize="$gh_sanitize -fno-omit-frame-pointer"
    GH_CFLAGS="$GH_CFLAGS $gh_sanitize"
    GH_LDFLAGS="$GH_LDFLAGS -fsanitize=$enable_sanitizer"
    gh_save="$CFLAGS"
    CFLAGS="$CFLAGS -fsanitize=$enable_sanitizer"
    AC_LINK_IFELSE([AC_LANG_PROGRAM()], [],
      [AC_MSG_ERROR([$CC cannot link -fsanitize=$enable_sanitizer])])
    CFLAGS="$gh_save"
    SANITIZE="-fsanitize=$enable_sanitizer"
    NO_SANITIZE="-fno-sanitize=$enable_sanitizer"
  ], [
    SANITIZE= NO_SANITIZE=
    # A sanitized object refers to a runtime that the program brings.
    GH_LDFLAGS="$GH_LDFLAGS -Wl,-z,defs"
  ])

  AM_CONDITIONAL([SANITIZED], [test -n "$SANITIZE"])
  AC_SUBST([SANITIZE])
  AC_SUBST([NO_SANITIZE])
  AC_SUBST([GH_CFLAGS])
  AC_SUBST([GH_LDFLAGS])
])
