# ax_gh_jansson.m4 - finds jansson, for `graphhooks plan`.
# SPDX-License-Identifier: Apache-2.0
#
# --with-jansson     with it, or an error
# (nothing)          with it where pkg-config finds it
# --without-jansson  `graphhooks plan` says that it was built without
AC_DEFUN([AX_GH_JANSSON], [
  AC_ARG_WITH([jansson],
    [AS_HELP_STRING([--with-jansson],
      [read JSON in `graphhooks plan` @<:@if found@:>@])],
    [], [with_jansson=auto])

  gh_have_jansson=no
  AS_IF([test "x$with_jansson" != xno], [
    PKG_CHECK_MODULES([JANSSON], [jansson >= 2.10],
                      [gh_have_jansson=yes], [gh_have_jansson=no])
  ])
  AS_CASE(["$with_jansson/$gh_have_jansson"],
    [yes/no], [AC_MSG_ERROR([--with-jansson: pkg-config finds no jansson (libjansson-dev)])],
    [*/yes], [gh_plan="reads JSON with jansson"],
    [gh_plan="cannot read JSON (no jansson)"])
  AM_CONDITIONAL([HAVE_JANSSON], [test "x$gh_have_jansson" = xyes])
  AC_SUBST([have_jansson], [$gh_have_jansson])
])
