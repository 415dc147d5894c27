/* graphhooks.h - every public header.  SPDX-License-Identifier: Apache-2.0 */
#ifndef GRAPHHOOKS_H
#define GRAPHHOOKS_H

#include <graphhooks/aux.h>
#include <graphhooks/bank.h>
#include <graphhooks/base.h>
#include <graphhooks/border.h>
#include <graphhooks/exchange.h>
#include <graphhooks/family.h>
#include <graphhooks/gradient.h>
#include <graphhooks/host.h>
#include <graphhooks/layer.h>
#include <graphhooks/loader.h>
#include <graphhooks/memory.h>
#include <graphhooks/model.h>
#include <graphhooks/offload.h>
#include <graphhooks/overlap.h>
#include <graphhooks/plan.h>
#include <graphhooks/pool.h>
#include <graphhooks/ranks.h>
#include <graphhooks/run.h>
#include <graphhooks/session.h>
#include <graphhooks/stash.h>
#include <graphhooks/words.h>

#endif
